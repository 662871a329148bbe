// Sends and administers with kafkajs, and reads back through a group where the broker has groups.
// Usage: node kafkajs_round_trip.js BOOTSTRAP TOPIC CODEC COUNT CONSUME(yes|no); prints JSON.
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const SnappyCodec = require('kafkajs-snappy')
const LZ4Codec = require('kafkajs-lz4')
const { ZstdCodec } = require('zstd-codec')

const [bootstrap, topic, codec, countText, consume] = process.argv.slice(2)
const count = Number(countText)

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = new LZ4Codec().codec
const zstd = new Promise((resolve) => ZstdCodec.run((module) => resolve(new module.Simple())))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async ({ buffer }) => Buffer.from((await zstd).compress(buffer, 3)),
  decompress: async (buffer) => Buffer.from((await zstd).decompress(buffer)),
})
const types = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

async function main() {
  const kafka = new Kafka({ clientId: 'conformance', brokers: [bootstrap], logLevel: logLevel.ERROR })
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: 1 }] })

  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const messages = Array.from({ length: count }, (_, number) => ({
    key: `key ${number}`,
    value: `${codec} ${number} `.repeat(20),
    headers: { number: String(number) },
  }))
  await producer.send({ topic, acks: -1, compression: types[codec], messages })
  await producer.disconnect()

  const [{ low, high }] = await admin.fetchTopicOffsets(topic)
  let read = null
  if (consume === 'yes') {
    const consumer = kafka.consumer({ groupId: `${topic}-group` })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    read = []
    await new Promise((resolve, reject) => {
      consumer.on('consumer.crash', ({ payload }) => reject(payload.error))
      consumer.run({
        eachMessage: async ({ message }) => {
          read.push(message.value.toString())
          if (read.length === count) resolve()
        },
      })
    })
    await consumer.disconnect()
  }
  await admin.disconnect()
  console.log(JSON.stringify({ low, high, read }))
}

main().catch((problem) => {
  console.error(problem)
  process.exit(1)
})
