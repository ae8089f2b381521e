import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/** What kafka-dump-log says of files, for each argument `a,b,c`: `argument TAB exit code TAB base64 of all it printed`. */
public class PeerOracle {
    public static void main(String[] arguments) {
        PrintStream out = System.out;
        for (String files : arguments) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream told = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(told);
            System.setErr(told);
            int exit = 0;
            try {
                org.apache.kafka.tools.DumpLogSegments.main(new String[] {"--deep-iteration", "--files", files});
            } catch (Throwable error) {
                // Nothing catches it in main: the JVM prints it, and ends with 1. It may stand behind half a line.
                exit = 1;
                told.println();
                told.println(error);
            }
            out.println(files + "\t" + exit + "\t" + Base64.getEncoder().encodeToString(said.toByteArray()));
        }
    }
}
