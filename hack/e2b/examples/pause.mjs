// Pauses a sandbox with its memory, and goes on. With autoPause a sandbox is paused at its deadline instead of deleted.
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create({ timeoutMs: 60_000, lifecycle: { onTimeout: 'pause' } })
const server = await sandbox.commands.run('while read line; do echo "got $line"; done', { background: true, stdin: true, timeoutMs: 0 })
await sandbox.commands.sendStdin(server.pid, 'one\n')

await sandbox.pause()
console.log((await sandbox.getInfo()).state)

await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
await sandbox.commands.sendStdin(server.pid, 'two\n') // the same process
await sandbox.commands.closeStdin(server.pid)
process.stdout.write((await (await sandbox.commands.connect(server.pid)).wait()).stdout)
await sandbox.kill()

// Prints:
// paused
// got one
// got two
