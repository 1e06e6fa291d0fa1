// Prepares a sandbox once, and makes others from a snapshot of its files.
import { Sandbox } from 'e2b'

const prepared = await Sandbox.create({ timeoutMs: 60_000 })
await prepared.commands.run('git init -q repo && cd repo && echo hello >file')
const { snapshotId } = await prepared.createSnapshot()
await prepared.kill()

const sandboxes = await Promise.all([1, 2].map(() => Sandbox.create(snapshotId, { timeoutMs: 60_000 })))
for (const sandbox of sandboxes) process.stdout.write((await sandbox.commands.run('cd repo && git status --short && cat file')).stdout)
await Promise.all(sandboxes.map((sandbox) => sandbox.kill()))

// The delete is refused as long as a sandbox that was made from it exists.
while (!(await Sandbox.deleteSnapshot(snapshotId).catch(() => false))) await new Promise((resolve) => setTimeout(resolve, 100))

// Prints:
// ?? file
// hello
// ?? file
// hello
