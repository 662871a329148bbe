import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Runs topologies of Kafka Streams in its TopologyTestDriver; its argument is a folder for state.
 *
 * <p>Standard input has a line "begin NAME" for each, and its records, a line each: topic, key, value
 * and timestamp in milliseconds, with tabs between them and \N for null. What the topologies write
 * goes to standard output in the same form, without the topic. Keys of windows are KEY@START/END.
 */
public final class Topologies {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Duration TEN = Duration.ofSeconds(10);
    private static final Duration FIVE = Duration.ofSeconds(5);
    private static final Duration HOUR = Duration.ofHours(1);
    private static final Duration GRACE = Duration.ofSeconds(2);

    private static KStream<String, String> stream(StreamsBuilder builder, String topic) {
        return builder.stream(topic, Consumed.with(TEXT, TEXT));
    }

    private static KTable<String, String> table(StreamsBuilder builder, String topic) {
        return builder.table(topic, Consumed.with(TEXT, TEXT));
    }

    private static void write(KStream<String, String> stream) {
        stream.to("out", Produced.with(TEXT, TEXT));
    }

    private static void writeTable(KTable<String, ?> table) {
        write(table.toStream().mapValues(value -> value == null ? null : value.toString()));
    }

    private static void writeWindows(KTable<Windowed<String>, ?> table) {
        write(table.toStream()
                .map((key, value) -> KeyValue.pair(
                        key.key() + "@" + key.window().start() + "/" + key.window().end(),
                        value == null ? null : value.toString())));
    }

    private static String add(String one, long other) {
        return Long.toString(Long.parseLong(one) + other);
    }

    private static String both(String left, String right) {
        return left + "+" + right;
    }

    private static void build(String name, StreamsBuilder builder) {
        Grouped<String, String> grouped = Grouped.with(TEXT, TEXT);
        switch (name) {
            case "map-filter":
                write(stream(builder, "a")
                        .filter((key, value) -> value != null && !value.startsWith("x"))
                        .map((key, value) -> KeyValue.pair(value, key)));
                break;
            case "flat-map-words-count":
                writeTable(stream(builder, "a")
                        .flatMapValues(value -> List.of(value.split(" ")))
                        .groupBy((key, value) -> value, grouped)
                        .count());
                break;
            case "merge":
                write(stream(builder, "a").merge(stream(builder, "b")));
                break;
            case "count":
                writeTable(stream(builder, "a").groupByKey(grouped).count());
                break;
            case "reduce":
                writeTable(stream(builder, "a").groupByKey(grouped).reduce(Topologies::both));
                break;
            case "sum":
                writeTable(stream(builder, "a")
                        .groupByKey(grouped)
                        .aggregate(() -> 0L, (key, value, sum) -> sum + Long.parseLong(value),
                                Materialized.with(TEXT, Serdes.Long())));
                break;
            case "cogroup":
                writeTable(stream(builder, "a")
                        .groupByKey(grouped)
                        .<String>cogroup((key, value, sum) -> sum + "a" + value)
                        .cogroup(stream(builder, "b").groupByKey(grouped),
                                (key, value, sum) -> sum + "b" + value)
                        .aggregate(() -> "", Materialized.with(TEXT, TEXT)));
                break;
            case "tumbling-count":
                writeWindows(stream(builder, "a").groupByKey(grouped)
                        .windowedBy(TimeWindows.ofSizeAndGrace(TEN, GRACE)).count());
                break;
            case "hopping-count":
                writeWindows(stream(builder, "a").groupByKey(grouped)
                        .windowedBy(TimeWindows.ofSizeAndGrace(TEN, GRACE).advanceBy(FIVE)).count());
                break;
            case "tumbling-count-final":
                writeWindows(stream(builder, "a").groupByKey(grouped)
                        .windowedBy(TimeWindows.ofSizeAndGrace(TEN, GRACE)).count()
                        .suppress(Suppressed.untilWindowCloses(
                                Suppressed.BufferConfig.unbounded())));
                break;
            case "session-count":
                writeWindows(stream(builder, "a").groupByKey(grouped)
                        .windowedBy(SessionWindows.ofInactivityGapAndGrace(FIVE, GRACE)).count());
                break;
            case "sliding-count":
                writeWindows(stream(builder, "a").groupByKey(grouped)
                        .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(FIVE, GRACE)).count());
                break;
            case "stream-join-inner":
                write(stream(builder, "a").join(stream(builder, "b"), Topologies::both,
                        JoinWindows.ofTimeDifferenceAndGrace(FIVE, GRACE),
                        StreamJoined.with(TEXT, TEXT, TEXT)));
                break;
            case "stream-join-left":
                write(stream(builder, "a").leftJoin(stream(builder, "b"), Topologies::both,
                        JoinWindows.ofTimeDifferenceAndGrace(FIVE, GRACE),
                        StreamJoined.with(TEXT, TEXT, TEXT)));
                break;
            case "stream-join-outer":
                write(stream(builder, "a").outerJoin(stream(builder, "b"), Topologies::both,
                        JoinWindows.ofTimeDifferenceAndGrace(FIVE, GRACE),
                        StreamJoined.with(TEXT, TEXT, TEXT)));
                break;
            case "stream-table-inner":
                write(stream(builder, "a").join(table(builder, "t"), Topologies::both,
                        Joined.with(TEXT, TEXT, TEXT)));
                break;
            case "stream-table-left":
                write(stream(builder, "a").leftJoin(table(builder, "t"), Topologies::both,
                        Joined.with(TEXT, TEXT, TEXT)));
                break;
            case "stream-global-inner":
                write(stream(builder, "a").join(
                        builder.globalTable("t", Consumed.with(TEXT, TEXT)),
                        (key, value) -> value, Topologies::both));
                break;
            case "table-join-inner":
                writeTable(table(builder, "s").join(table(builder, "t"), Topologies::both));
                break;
            case "table-join-left":
                writeTable(table(builder, "s").leftJoin(table(builder, "t"), Topologies::both));
                break;
            case "table-join-outer":
                writeTable(table(builder, "s").outerJoin(table(builder, "t"), Topologies::both));
                break;
            case "foreign-key-inner":
                writeTable(table(builder, "s").join(table(builder, "t"),
                        value -> value.substring(0, 1), Topologies::both,
                        Materialized.with(TEXT, TEXT)));
                break;
            case "foreign-key-left":
                writeTable(table(builder, "s").leftJoin(table(builder, "t"),
                        value -> value.substring(0, 1), Topologies::both,
                        Materialized.with(TEXT, TEXT)));
                break;
            case "table-group-count":
                writeTable(table(builder, "t")
                        .groupBy((key, value) -> KeyValue.pair(value.substring(0, 1), value),
                                grouped)
                        .count());
                break;
            case "table-map-values":
                writeTable(table(builder, "t").mapValues(value -> value.toUpperCase()));
                break;
            case "table-group-sum":
                writeTable(table(builder, "t")
                        .groupBy((key, value) -> KeyValue.pair("n" + value.length(), value), grouped)
                        .aggregate(() -> 0L,
                                (key, value, sum) -> sum + Long.parseLong(value),
                                (key, value, sum) -> sum - Long.parseLong(value),
                                Materialized.with(TEXT, Serdes.Long())));
                break;
            case "table-group-reduce":
                writeTable(table(builder, "t")
                        .groupBy((key, value) -> KeyValue.pair("n" + value.length(), value), grouped)
                        .reduce((one, other) -> add(one, Long.parseLong(other)),
                                (one, other) -> add(one, -Long.parseLong(other))));
                break;
            case "to-table":
                writeTable(stream(builder, "a").toTable(Materialized.with(TEXT, TEXT))
                        .mapValues(value -> value + "!"));
                break;
            case "branch":
                stream(builder, "a").split()
                        .branch((key, value) -> value.length() < 3,
                                Branched.withConsumer(part -> write(part.mapValues(v -> "s" + v))))
                        .branch((key, value) -> value.startsWith("x"),
                                Branched.withConsumer(part -> write(part.mapValues(v -> "x" + v))))
                        .defaultBranch(
                                Branched.withConsumer(part -> write(part.mapValues(v -> "r" + v))));
                break;
            case "repartition-count":
                writeTable(stream(builder, "a")
                        .selectKey((key, value) -> value.substring(0, 1))
                        .repartition(Repartitioned.with(TEXT, TEXT))
                        .groupByKey(grouped).count());
                break;
            case "count-of-counts":
                writeTable(stream(builder, "a").groupByKey(grouped).count()
                        .toStream()
                        .groupBy((key, value) -> value.toString(), Grouped.with(TEXT, Serdes.Long()))
                        .count());
                break;
            case "cogroup-tumbling":
                writeWindows(stream(builder, "a")
                        .groupByKey(grouped)
                        .<String>cogroup((key, value, sum) -> sum + "a" + value)
                        .cogroup(stream(builder, "b").groupByKey(grouped),
                                (key, value, sum) -> sum + "b" + value)
                        .windowedBy(TimeWindows.ofSizeAndGrace(TEN, GRACE))
                        .aggregate(() -> "", Materialized.with(TEXT, TEXT)));
                break;
            case "tumbling-reduce":
                writeWindows(stream(builder, "a").groupByKey(grouped)
                        .windowedBy(TimeWindows.ofSizeAndGrace(TEN, GRACE))
                        .reduce(Topologies::both));
                break;
            case "hopping-count-final":
                writeWindows(stream(builder, "a").groupByKey(grouped)
                        .windowedBy(TimeWindows.ofSizeAndGrace(TEN, GRACE).advanceBy(FIVE)).count()
                        .suppress(Suppressed.untilWindowCloses(
                                Suppressed.BufferConfig.unbounded())));
                break;
            case "session-count-final":
                writeWindows(stream(builder, "a").groupByKey(grouped)
                        .windowedBy(SessionWindows.ofInactivityGapAndGrace(FIVE, GRACE)).count()
                        .suppress(Suppressed.untilWindowCloses(
                                Suppressed.BufferConfig.unbounded())));
                break;
            case "sliding-count-final":
                writeWindows(stream(builder, "a").groupByKey(grouped)
                        .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(FIVE, GRACE)).count()
                        .suppress(Suppressed.untilWindowCloses(
                                Suppressed.BufferConfig.unbounded())));
                break;
            case "suppress-until-time-limit":
                writeTable(stream(builder, "a").groupByKey(grouped).count()
                        .suppress(Suppressed.untilTimeLimit(
                                FIVE, Suppressed.BufferConfig.unbounded())));
                break;
            case "stream-join-right":
                write(stream(builder, "b").leftJoin(stream(builder, "a"),
                        (right, left) -> both(left, right),
                        JoinWindows.ofTimeDifferenceAndGrace(FIVE, GRACE),
                        StreamJoined.with(TEXT, TEXT, TEXT)));
                break;
            case "stream-join-after":
                write(stream(builder, "a").join(stream(builder, "b"), Topologies::both,
                        JoinWindows.ofTimeDifferenceAndGrace(FIVE, GRACE).before(Duration.ZERO),
                        StreamJoined.with(TEXT, TEXT, TEXT)));
                break;
            case "stream-join-window-final":
                writeWindows(stream(builder, "a").join(stream(builder, "b"), Topologies::both,
                                JoinWindows.ofTimeDifferenceAndGrace(FIVE, GRACE),
                                StreamJoined.with(TEXT, TEXT, TEXT))
                        .groupByKey(grouped)
                        .windowedBy(TimeWindows.ofSizeAndGrace(TEN, TEN)).count()
                        .suppress(Suppressed.untilWindowCloses(
                                Suppressed.BufferConfig.unbounded())));
                break;
            case "stream-table-versioned":
                write(stream(builder, "a").join(
                        builder.table("t", Consumed.with(TEXT, TEXT), Materialized.<String, String>as(
                                        Stores.persistentVersionedKeyValueStore("t", HOUR))
                                .withKeySerde(TEXT).withValueSerde(TEXT)),
                        Topologies::both, Joined.with(TEXT, TEXT, TEXT)));
                break;
            case "stream-global-left":
                write(stream(builder, "a").leftJoin(
                        builder.globalTable("t", Consumed.with(TEXT, TEXT)),
                        (key, value) -> value, Topologies::both));
                break;
            case "processor":
                builder.addStateStore(Stores.keyValueStoreBuilder(
                        Stores.inMemoryKeyValueStore("seen"), TEXT, TEXT));
                write(stream(builder, "a").process(Silence::new, "seen"));
                break;
            case "table-filter":
                writeTable(table(builder, "t").filter((key, value) -> value.length() > 2));
                break;
            default:
                throw new IllegalArgumentException("no topology is named " + name);
        }
    }

    /** Counts the records of each key, and says so once a key was silent for five seconds. */
    private static final class Silence extends ContextualProcessor<String, String, String, String> {
        private KeyValueStore<String, String> seen; // count and time of the last record

        @Override
        public void init(ProcessorContext<String, String> context) {
            super.init(context);
            seen = context.getStateStore("seen");
            context.schedule(Duration.ofMillis(1), PunctuationType.STREAM_TIME, this::look);
        }

        @Override
        public void process(Record<String, String> record) {
            String before = seen.get(record.key());
            long count = before == null ? 0 : Long.parseLong(before.split(" ")[0]);
            seen.put(record.key(), (count + 1) + " " + record.timestamp());
        }

        private void look(long now) {
            List<String> silent = new ArrayList<>();
            try (KeyValueIterator<String, String> all = seen.all()) {
                while (all.hasNext()) {
                    KeyValue<String, String> each = all.next();
                    if (Long.parseLong(each.value.split(" ")[1]) + FIVE.toMillis() <= now) {
                        silent.add(each.key);
                    }
                }
            }
            for (String key : silent) {
                context().forward(new Record<>(key, seen.delete(key), now));
            }
        }
    }

    private static String field(String text) {
        return text.equals("\\N") ? null : text;
    }

    private static String text(String field) {
        return field == null ? "\\N" : field;
    }

    /** Begins a topology; its records follow. */
    private static final String BEGIN = "begin ";

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line = lines.readLine();
        while (line != null) {
            String name = line.substring(BEGIN.length());
            List<String> records = new ArrayList<>();
            for (line = lines.readLine(); line != null && !line.startsWith(BEGIN);
                    line = lines.readLine()) {
                records.add(line);
            }
            out.println(BEGIN + name);
            run(name, records, arguments[0], out);
        }
        out.flush();
    }

    private static void run(String name, List<String> records, String folder, PrintStream out) {
        StreamsBuilder builder = new StreamsBuilder();
        build(name, builder);
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "topology");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "unused:1");
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, TEXT.getClass());
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, TEXT.getClass());
        properties.put(StreamsConfig.STATE_DIR_CONFIG, folder);
        try (TopologyTestDriver driver =
                new TopologyTestDriver(builder.build(), properties, Instant.ofEpochMilli(0))) {
            Map<String, TestInputTopic<String, String>> inputs = new LinkedHashMap<>();
            TestOutputTopic<String, String> output = driver.createOutputTopic(
                    "out", new StringDeserializer(), new StringDeserializer());
            for (String record : records) {
                String[] parts = record.split("\t", -1);
                inputs.computeIfAbsent(parts[0], topic -> driver.createInputTopic(
                                topic, new StringSerializer(), new StringSerializer()))
                        .pipeInput(field(parts[1]), field(parts[2]), Long.parseLong(parts[3]));
            }
            output.readRecordsToList().forEach(record -> out.println(String.join("\t",
                    text(record.key()), text(record.value()),
                    Long.toString(record.timestamp()))));
        }
    }
}
