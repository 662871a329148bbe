import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * Kafka Streams with the topologies of benchmarks/streams_topologies.py: exactly once, two threads.
 *
 * Arguments: bootstrap, the folder of its state, and "map" or "count". Runs until it is killed.
 */
public final class StreamsLoad {
    public static void main(String[] arguments) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> input = builder.stream("input");
        if (arguments[2].equals("map")) {
            input.mapValues(value -> value.toUpperCase()).to("output");
        } else {
            input.groupByKey()
                    .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofHours(1)))
                    .count()
                    .toStream()
                    .map((window, count) -> KeyValue.pair(window.key(), Long.toString(count)))
                    .to("output");
        }
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "load");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put("auto.offset.reset", "earliest");
        Class<?> text = Serdes.StringSerde.class;
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, text);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, text);
        new KafkaStreams(builder.build(), settings).start();
    }
}
