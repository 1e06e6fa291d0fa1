// Starts a command, leaves, and comes back for its output and exit code. That works as well in another process, after a restart of agboxd, and
// after the end of the command: the ID of the sandbox and the pid are enough.
import { Sandbox } from 'e2b'

const first = await Sandbox.create({ timeoutMs: 60_000, metadata: { job: 'count' } })
const { pid } = await first.commands.run('for i in 1 2 3; do echo $i; sleep 0.2; done; exit 5', { background: true, timeoutMs: 0 })

const sandbox = await Sandbox.connect(first.sandboxId)
const job = await sandbox.commands.connect(pid)
const result = await job.wait().catch((error) => error) // an exit code other than 0 is an error
console.log(`exit code ${result.exitCode}, output ${JSON.stringify(result.stdout)}`)
await sandbox.kill()

// Prints:
// exit code 5, output "1\n2\n3\n"
