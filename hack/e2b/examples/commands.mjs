// Runs commands in a sandbox, and reads and writes its files.
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create({ timeoutMs: 60_000, envs: { GREETING: 'hello' } })

await sandbox.files.write('add.py', 'import sys\nprint(sum(map(int, sys.argv[1:])))\n')
const { stdout } = await sandbox.commands.run('echo $GREETING; python3 add.py 1 2 3', {
  onStdout: (text) => process.stdout.write(text), // as it is printed
})
await sandbox.files.write('/tmp/result', stdout)
console.log(JSON.stringify(await sandbox.files.read('/tmp/result')))

try {
  await sandbox.commands.run('ls /nope')
} catch (error) {
  console.log(`exit code ${error.exitCode}: ${error.stderr.trim()}`)
}
await sandbox.kill()

// Prints:
// hello
// 6
// "hello\n6\n"
// exit code 2: ls: cannot access '/nope': No such file or directory
