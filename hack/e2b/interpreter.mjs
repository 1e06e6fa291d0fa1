// Runs cells with @e2b/code-interpreter against agboxd at E2B_API_URL, in the template that docs/e2b.md describes.
import assert from 'node:assert/strict'
import { Sandbox, Template, finish, get, kill, pause, test } from './harness.mjs'
import { waitForURL } from 'e2b'

await Template.build(
  Template().fromImage('agbox-interpreter:dev').setStartCmd('agbox-interpreter', waitForURL('http://localhost:49999/health')),
  'code-interpreter-v1',
)
const s = await Sandbox.create({ envs: { GLOBAL: 'g' }, timeoutMs: 600000 })

await test('text, output and variables', async () => {
  const printed = []
  await s.runCode('x = 41')
  const e = await s.runCode('import sys\nprint("out")\nprint("err", file=sys.stderr)\nx + 1', { onStdout: (m) => printed.push(m.line) })
  assert.deepEqual([e.text, e.logs, e.error, printed], ['42', { stdout: ['out\n'], stderr: ['err\n'] }, undefined, ['out\n']])
  assert.deepEqual([(await s.runCode('')).results, (await s.runCode('None')).text], [[], undefined])
})
await test('lines arrive while the cell runs', async () => {
  const at = []
  await s.runCode('import time\nfor i in range(3):\n  print(i, flush=True)\n  time.sleep(0.5)', { onStdout: () => at.push(Date.now()) })
  assert.ok(at.length === 3 && at[2] - at[0] > 700, at.join())
})
await test('errors', async () => {
  const { error } = await s.runCode('def f():\n  raise ValueError("no")\nf()')
  assert.deepEqual([error.name, error.value], ['ValueError', 'no'])
  assert.match(error.traceback, /raise/)
  assert.equal((await s.runCode('a b')).error.name, 'SyntaxError')
})
await test('charts and tables', async () => {
  const { results } = await s.runCode('import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.title("t")\nplt.show()\nplt.bar([1], [2])\nplt.show()')
  assert.deepEqual(results.map((r) => r.formats()), [['png'], ['png']])
  for (const r of results) assert.equal(Buffer.from(r.png, 'base64').subarray(1, 4).toString(), 'PNG')
  const table = await s.runCode('import pandas as pd\npd.DataFrame({"a": [1, 2]})')
  assert.match(table.results[0].html, /<table/)
})
await test('the user, files and environment of commands', async () => {
  await s.files.write('in.txt', 'from files')
  assert.equal((await s.runCode('import os, getpass\nopen("in.txt").read(), getpass.getuser(), os.environ["GLOBAL"]')).text, "('from files', 'user', 'g')")
  const env = 'import os; os.environ.get("ONCE")'
  assert.deepEqual([(await s.runCode(env, { envs: { ONCE: '1' } })).text, (await s.runCode(env)).text], ["'1'", undefined])
  assert.match((await s.runCode('!echo shell')).logs.stdout.join(''), /shell/)
})
await test('contexts', async () => {
  const c = await s.createCodeContext({ cwd: '/tmp' })
  assert.equal((await s.runCode('import os; y = 1; os.getcwd()', { context: c })).text, "'/tmp'")
  assert.equal((await s.runCode('y')).error.name, 'NameError')
  assert.deepEqual((await s.listCodeContexts()).map((x) => x.cwd).toSorted(), ['/home/user', '/tmp'])
  await s.restartCodeContext(c)
  assert.equal((await s.runCode('y', { context: c })).error.name, 'NameError')
  await s.removeCodeContext(c.id)
  await assert.rejects(s.runCode('1', { context: c }), /not found/)
  await assert.rejects(s.runCode('1', { language: 'r' }), /language r was not found/)
  await assert.rejects(s.createCodeContext({ cwd: '/nowhere' }), /directory \/nowhere was not found/)
})
await test('a cell that takes too long is interrupted, and the kernel goes on', async () => {
  await assert.rejects(s.runCode('z = 5\nwhile True: pass', { timeoutMs: 1000 }), /timed out/)
  assert.equal((await s.runCode('z')).text, '5')
})
await test('a kernel that dies is started again', async () => {
  assert.equal((await s.runCode('import os; os._exit(1)')).error.name, 'KernelDied')
  assert.equal((await s.runCode('1 + 1')).text, '2')
})
await test('kill -9 of the daemon, and a pause', async () => {
  await s.runCode('kept = 7')
  const cut = s.runCode('import time; time.sleep(2); kept = 8').then(() => 'ended', () => 'cut off')
  await pause(500)
  await kill()
  assert.equal(await cut, 'cut off')
  assert.equal((await s.runCode('kept')).text, '7') // the client has left, so the cell was interrupted
  await s.pause()
  await s.connect()
  assert.equal((await s.runCode('kept')).text, '7')
  assert.match((await get(s, 49999, '/health')).body.toString(), /OK/)
})
await s.kill()
finish()
