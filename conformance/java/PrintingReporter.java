import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.common.telemetry.internals.ClientTelemetryUtils;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;

/**
 * Has Kafka's broker take metrics of clients. A line of the file that the system property
 * telemetry.file names is a value: client id, whether it is the client's last push, the name of the
 * metric. Kafka's own classes read what was pushed.
 */
public final class PrintingReporter implements MetricsReporter, ClientTelemetryExporterProvider {
    @Override
    public ClientTelemetryExporter clientTelemetryExporter() {
        Path file = Path.of(System.getProperty("telemetry.file"));
        return (context, payload) -> {
            ByteBuffer data = payload.data();
            StringBuilder lines = new StringBuilder();
            String client = context.authorizableRequestContext().clientId();
            ClientTelemetryUtils.deserializeMetricsData(data).getResourceMetricsList().stream()
                    .flatMap(each -> each.getScopeMetricsList().stream())
                    .flatMap(each -> each.getMetricsList().stream())
                    .forEach(each -> lines.append(client).append(' ')
                            .append(payload.isTerminating()).append(' ')
                            .append(each.getName()).append('\n'));
            try {
                Files.write(file, lines.toString().getBytes(StandardCharsets.UTF_8),
                        StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
    }

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void close() {}

    @Override
    public void configure(Map<String, ?> configs) {}
}
