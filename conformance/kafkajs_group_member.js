// One kafkajs member of a group; prints what it reads as JSON lines until SIGTERM.
// Usage: node kafkajs_group_member.js BOOTSTRAP GROUP TOPIC NAME
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, groupId, topic, clientId] = process.argv.slice(2)

async function main() {
  const kafka = new Kafka({ clientId, brokers: [bootstrap], logLevel: logLevel.ERROR })
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 500 })
  process.on('SIGTERM', () => consumer.disconnect().then(() => process.exit(0)))
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  consumer.on('consumer.group_join', ({ payload }) => {
    const assigned = payload.memberAssignment[topic] || []
    console.log(JSON.stringify({ assigned, protocol: payload.groupProtocol }))
  })
  console.log(JSON.stringify({ ready: clientId }))
  await consumer.run({
    eachBatch: async ({ batch }) => {
      console.log(JSON.stringify({ read: batch.messages.map(({ value }) => value.toString()) }))
    },
  })
}

main().catch((problem) => {
  console.error(problem)
  process.exit(1)
})
