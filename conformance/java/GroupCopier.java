import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A member of a group that copies what it is assigned in transactions, with the Java clients. It
 * aborts every third transaction, by chance, and goes back.
 *
 * Arguments: bootstrap, source, target, group, group protocol, transactional id. Runs until it is
 * killed, or fenced.
 */
public final class GroupCopier {
    public static void main(String[] arguments) {
        String target = arguments[2];
        Random random = new Random();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(arguments);
                KafkaProducer<byte[], byte[]> producer = producer(arguments)) {
            producer.initTransactions();
            consumer.subscribe(List.of(arguments[1]));
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                try {
                    for (ConsumerRecord<byte[], byte[]> record : records) {
                        producer.send(new ProducerRecord<>(target, record.key(), record.value()));
                    }
                    producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                    if (random.nextInt(3) == 0) {
                        producer.flush();
                        throw new KafkaException("by chance");
                    }
                    producer.commitTransaction();
                } catch (ProducerFencedException fenced) {
                    throw fenced;
                } catch (KafkaException failed) {
                    System.out.println("aborts: " + failed);
                    producer.abortTransaction();
                    goBack(consumer, records);
                }
            }
        }
    }

    private static void goBack(
            KafkaConsumer<byte[], byte[]> consumer, ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, Long> starts = new HashMap<>();
        for (TopicPartition partition : records.partitions()) {
            starts.put(partition, records.records(partition).get(0).offset());
        }
        starts.keySet().retainAll(consumer.assignment());
        starts.forEach(consumer::seek);
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[3]);
        settings.put("group.protocol", arguments[4]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "20");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return new KafkaConsumer<>(settings);
    }

    private static KafkaProducer<byte[], byte[]> producer(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", arguments[5]);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        return new KafkaProducer<>(settings);
    }
}
