import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends one record at a time with Kafka's producer and waits for each acknowledgement.
 *
 * Arguments: bootstrap, topic, records that are measured, records before them. Prints the latencies
 * in nanoseconds, one a line, in the order of the sends.
 */
public final class SynchronousSends {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        int before = Integer.parseInt(arguments[3]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        settings.put("linger.ms", "0");
        byte[] value = new byte[100];
        Arrays.fill(value, (byte) 'x');
        long[] latencies = new long[count];
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            for (int number = -before; number < count; number++) {
                long started = System.nanoTime();
                producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
                if (number >= 0) {
                    latencies[number] = System.nanoTime() - started;
                }
            }
        }
        StringBuilder lines = new StringBuilder();
        for (long latency : latencies) {
            lines.append(latency).append('\n');
        }
        System.out.print(lines);
    }
}
