# Formula for a tap. `brew update-python-resources kseg` writes the resource blocks of the dependencies; replace the url
# and the sha256 by those of the released sdist.
class Kseg < Formula
  include Language::Python::Virtualenv

  desc "Inspect, validate, convert and repair Apache Kafka log segments"
  homepage "https://example.invalid/kseg"
  url "https://example.invalid/kseg-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"

  depends_on "rust" => :build # cramjam
  depends_on "lz4"
  depends_on "python@3.13"

  def install
    ENV["KSEG_BUILD"] = "compiled"
    virtualenv_install_with_resources
    man1.install Dir[libexec/"share/man/man1/*.1"]
    generate_completions_from_executable(bin/"kseg", "completion")
  end

  test do
    assert_match "(engine: compiled)", shell_output("#{bin}/kseg --version")
    (testpath/"00000000000000000000.log").write ""
    system bin/"kseg", "validate", testpath/"00000000000000000000.log"
  end
end
