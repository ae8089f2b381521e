# Formula for a tap. packaging/fill_recipes.py fills its places for a released sdist.
class Kseg < Formula
  include Language::Python::Virtualenv

  desc "Inspect, validate, convert and repair Apache Kafka log segments"
  homepage "@HOME@"
  url "@URL@"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on "rust" => :build # cramjam
  depends_on "lz4"
  depends_on "python@3.13"

  @RESOURCES@

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
