import java.io.FileOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * A resource manager and a node manager of YARN, until somebody ends the process.
 *
 * FOLDER: yarn-site.xml, which says where they are, is there once they answer.
 */
public class Yarn {
    public static void main(String[] args) throws Exception {
        Configuration wanted = new YarnConfiguration();
        wanted.set("fs.defaultFS", "file:///");
        wanted.set("yarn.nodemanager.resource.memory-mb", "6144");
        wanted.set("yarn.scheduler.minimum-allocation-mb", "256");
        wanted.set("yarn.scheduler.capacity.root.queues", "default");
        wanted.set("yarn.scheduler.capacity.root.default.capacity", "100");
        wanted.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1");
        // It is the machine's disk and memory that would stop a container here, not what the test is about.
        wanted.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "100");
        wanted.set("yarn.nodemanager.vmem-check-enabled", "false");
        wanted.set("yarn.nodemanager.pmem-check-enabled", "false");
        MiniYARNCluster cluster = new MiniYARNCluster("tests", 1, 1, 1);
        cluster.init(wanted);
        cluster.start();
        Path site = Path.of(args[0], "yarn-site.xml");
        Path unfinished = Path.of(args[0], "unfinished");
        try (FileOutputStream out = new FileOutputStream(unfinished.toFile())) {
            new Configuration(cluster.getConfig()).writeXml(out);
        }
        Files.copy(unfinished, Path.of(args[0], "core-site.xml"));
        Files.move(unfinished, site);
        Thread.sleep(Long.MAX_VALUE);
    }
}
