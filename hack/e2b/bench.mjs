// Carries out one operation of the SDK for each line of standard input, its name, and answers with a line of JSON: {ms, cpuMs}, the time of the
// operation and the processor time of this process meanwhile, or {error}. The end of the input kills the sandbox.
import readline from 'node:readline'
import { Sandbox } from 'e2b'

let s
const timeoutMs = 600000
const small = 'x'.repeat(1 << 10)
const large = new Uint8Array(8 << 20).fill(120).buffer
const read = async (path, size, format) => {
  const got = await s.files.read(path, { format })
  if ((got.length ?? got.byteLength) !== size) throw new Error(`${path} has ${got.length} bytes`)
}
const operations = {
  create: async () => (s = await Sandbox.create({ timeoutMs })),
  true: () => s.commands.run('true'),
  'true-20': () => Promise.all(Array.from({ length: 20 }, () => s.commands.run('true'))),
  'write-small': () => s.files.write('/tmp/small', small),
  'read-small': () => read('/tmp/small', small.length),
  'write-large': () => s.files.write('/tmp/large', large),
  'read-large': () => read('/tmp/large', large.byteLength, 'bytes'),
  'list-files': () => s.files.list('/etc'),
  list: () => Sandbox.list().nextItems(),
  info: () => s.getInfo(),
  'pause-connect': async () => {
    await s.pause()
    await Sandbox.connect(s.sandboxId, { timeoutMs })
  },
  kill: () => s.kill(),
}

for await (const name of readline.createInterface({ input: process.stdin })) {
  const cpu = process.cpuUsage()
  const begun = performance.now()
  try {
    await operations[name]()
    const ms = performance.now() - begun
    const { user, system } = process.cpuUsage(cpu)
    console.log(JSON.stringify({ ms, cpuMs: (user + system) / 1000 }))
  } catch (e) {
    console.log(JSON.stringify({ error: e.stack }))
  }
}
await s?.kill()
