// Runs one release of E2B's SDK, the package that is named by the first argument, against a daemon. The other settings are the SDK's own
// variables.
import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import { createServer } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { Sandbox, Template, all, finish, get, kill, listed, named, pause, test } from './harness.mjs'

const freeze = (s) => (s.pause ?? s.betaPause).call(s)
const odd = { a: 'b c&d=e+f%', 'x=y': 'ü' }
const s = await Sandbox.create({ timeoutMs: 300000, envs: { GLOBAL: 'g' }, metadata: odd })

await test('sandbox: info, list, timeout', async () => {
  assert.match(s.sandboxId, /^[a-z0-9]+$/)
  assert.equal(await s.isRunning(), true)
  const info = await s.getInfo()
  assert.deepEqual([info.state, info.metadata, info.templateId], ['running', odd, 'base'])
  assert.deepEqual(await listed({ metadata: odd }), [s.sandboxId])
  assert.deepEqual(await listed({ metadata: { a: 'other' } }), [])
  await s.setTimeout(100000)
  const left = (await s.getInfo()).endAt - Date.now()
  assert.ok(left > 90000 && left <= 100000, `${left} ms are left`)
  await Sandbox.connect(s.sandboxId, { timeoutMs: 10000 })
  assert.ok((await s.getInfo()).endAt - Date.now() > 80000, 'a connect has shortened the deadline')
  assert.equal((await s.getMetrics()).length, 1)
  assert.equal(s.getHost(8080).split(':')[0], `8080-${s.sandboxId}.localhost`)
})
await test('sandbox: errors', async () => {
  await assert.rejects(Sandbox.create('no-such-template'), /e2b.templates/)
  await assert.rejects(Sandbox.create({ network: { allowOut: ['example.com'], denyOut: ['8.8.8.8'] } }), /not supported/)
  await assert.rejects(Sandbox.connect('nosuchsandbox'), named(/NotFound/))
  await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(56) }), named(/Authentication/))
})
await test('network: what a sandbox reaches of its host', async () => {
  const server = createServer((c) => c.end('host')).listen(0, '0.0.0.0')
  await once(server, 'listening')
  const port = server.address().port
  const ask = `python3 -c "
import socket, struct
gateway = [f[2] for f in map(str.split, open('/proc/net/route')) if f[1] == '00000000'][0]
try:
    print(socket.create_connection((socket.inet_ntoa(struct.pack('<L', int(gateway, 16))), ${port}), 2).recv(9))
except TimeoutError:
    print('closed')"`
  const closed = await Sandbox.create({ allowInternetAccess: false, timeoutMs: 100000 })
  for (const sandbox of [s, closed]) assert.equal((await sandbox.commands.run(ask)).stdout, 'closed\n')
  if (closed.updateNetwork) {
    await closed.updateNetwork({ denyOut: ['8.8.8.8'] })
    assert.deepEqual((await closed.getInfo()).network?.denyOut, ['8.8.8.8/32'])
    assert.equal((await closed.commands.run(ask)).stdout, 'closed\n')
  }
  await closed.kill()
  server.close()
})
await test('run: output, exit code, environment, directory, users', async () => {
  const r = await s.commands.run('echo out; echo err >&2; echo $GLOBAL $MORE $USER $HOME; pwd', { envs: { MORE: '1 2' } })
  assert.deepEqual([r.exitCode, r.stdout, r.stderr], [0, 'out\ng 1 2 user /home/user\n/home/user\n', 'err\n'])
  await assert.rejects(s.commands.run('echo x; exit 3'), (e) => e.exitCode === 3 && e.stdout === 'x\n')
  assert.equal((await s.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
  assert.equal((await s.commands.run('id -u; pwd', { user: 'root' })).stdout, '0\n/root\n')
  await assert.rejects(s.commands.run('true', { cwd: '/nope' }), named(/InvalidArgument/))
  await assert.rejects(s.commands.run('true', { user: 'nobodyhere' }), named(/Authentication/))
  await assert.rejects(s.commands.run('sleep 30', { timeoutMs: 700 }), named(/Timeout/))
})
await test('run: 5 MB, 20 at once, 100 in a row', async () => {
  assert.equal((await s.commands.run("head -c 5000000 /dev/zero | tr '\\0' a")).stdout.length, 5000000)
  const all = await Promise.all([...Array(20).keys()].map((i) => s.commands.run('echo ' + i)))
  all.forEach((r, i) => assert.equal(r.stdout, i + '\n'))
  for (let i = 0; i < 100; i++) assert.equal((await s.commands.run('echo ' + i)).stdout, i + '\n')
})
await test('background: input, list, kill, connect', async () => {
  const cat = await s.commands.run('head -n 2', { background: true, stdin: true })
  await s.commands.sendStdin(cat.pid, 'hello\n')
  await s.commands.sendStdin(cat.pid, 'x'.repeat(200000) + '\n')
  assert.equal((await cat.wait()).stdout.length, 200007)
  const sleep = await s.commands.run('sleep 100', { background: true })
  assert.ok((await s.commands.list()).some((p) => p.pid === sleep.pid))
  assert.equal(await sleep.kill(), true)
  await assert.rejects(sleep.wait(), named(/CommandExit/))
  assert.equal(await s.commands.kill(sleep.pid), false)
  const loop = await s.commands.run('for i in 1 2 3; do echo $i; sleep 0.2; done; exit 5', { background: true })
  await loop.disconnect()
  for (let i = 0; i < 2; i++) {
    const again = await s.commands.connect(loop.pid)
    await assert.rejects(again.wait(), (e) => e.exitCode === 5 && e.stdout === '1\n2\n3\n')
  }
})
await test('pty', async () => {
  let out = ''
  const decoder = new TextDecoder()
  const pty = await s.pty.create({ cols: 80, rows: 24, onData: (d) => (out += decoder.decode(d)) })
  await s.pty.resize(pty.pid, { cols: 111, rows: 33 })
  await s.pty.sendInput(pty.pid, new TextEncoder().encode('stty size; exit 7\n'))
  await assert.rejects(pty.wait(), (e) => e.exitCode === 7)
  assert.match(out, /33 111/)
})
await test('files', async () => {
  const made = await s.files.write('a/b/ü c.txt', 'hellö')
  assert.equal(made.path, '/home/user/a/b/ü c.txt')
  assert.equal(await s.files.read('/home/user/a/b/ü c.txt'), 'hellö')
  assert.equal((await s.commands.run('stat -c %U "a/b/ü c.txt"')).stdout, 'user\n')
  const big = new Uint8Array(8 << 20).map((_, i) => i % 251)
  await s.files.write('/tmp/big', big.buffer)
  assert.deepEqual(Buffer.from(await s.files.read('/tmp/big', { format: 'bytes' })), Buffer.from(big))
  await s.files.write('/tmp/empty', '')
  assert.equal(await s.files.read('/tmp/empty'), '')
  await s.files.write([{ path: 'm1', data: '1' }, { path: '/tmp/m2', data: new Blob(['2']) }])
  assert.equal((await s.files.read('m1')) + (await s.files.read('/tmp/m2')), '12')
  await assert.rejects(s.files.read('/nope'), named(/NotFound/))
  await assert.rejects(s.files.write('/etc/x', '1'), /permission denied/)
  await s.files.write('/etc/x', '1', { user: 'root' })
})
await test('directories', async () => {
  assert.equal(await s.files.makeDir('d/e'), true)
  assert.equal(await s.files.makeDir('d/e'), false)
  await s.files.write('d/f', '1')
  await s.commands.run('ln -s f d/l')
  const list = await s.files.list('d')
  assert.deepEqual(list.map((x) => `${x.name} ${x.type}`), ['e dir', 'f file', 'l file'])
  assert.deepEqual((await s.files.list('a', { depth: 2 })).map((x) => x.path), ['/home/user/a/b', '/home/user/a/b/ü c.txt'])
  assert.equal((await s.files.getInfo('d/f')).permissions, '-rw-r--r--')
  assert.equal((await s.files.rename('d/f', 'd/g')).path, '/home/user/d/g')
  assert.equal(await s.files.exists('d/f'), false)
  await s.files.remove('d')
  assert.equal(await s.files.exists('d'), false)
  await assert.rejects(s.files.list('/nope'), named(/NotFound/))
})
await test('watch', async () => {
  await s.files.makeDir('w')
  const seen = []
  const watch = await s.files.watchDir('w', (e) => seen.push(`${e.type} ${e.name}`))
  await s.files.write('w/x', '1')
  await s.files.remove('w/x')
  for (let i = 0; i < 100 && !seen.includes('remove x'); i++) await pause(50)
  await watch.stop()
  assert.deepEqual([...new Set(seen)].filter((e) => !e.startsWith('chmod')), ['create x', 'write x', 'remove x'])
})
await test('polled watch', async () => {
  // The calls of Python's synchronous client, which the SDK for JavaScript has in its protocol and not in its API.
  const call = async (name, message) => {
    const resp = await fetch(`${process.env.E2B_SANDBOX_URL}/filesystem.Filesystem/${name}`, {
      method: 'POST',
      body: JSON.stringify(message),
      headers: {
        'Content-Type': 'application/json', 'Connect-Protocol-Version': '1', 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': s.envdAccessToken,
      },
    })
    return { status: resp.status, ...(await resp.json()) }
  }
  await s.files.makeDir('pw')
  const { watcherId } = await call('CreateWatcher', { path: 'pw', recursive: true })
  await s.files.write('pw/x', '1')
  await s.files.remove('pw/x')
  const seen = []
  for (let i = 0; i < 100 && !seen.includes('EVENT_TYPE_REMOVE x'); i++) {
    seen.push(...((await call('GetWatcherEvents', { watcherId })).events ?? []).map((e) => `${e.type} ${e.name}`))
    await pause(50)
  }
  assert.deepEqual([...new Set(seen)].filter((e) => !e.includes('CHMOD')), ['EVENT_TYPE_CREATE x', 'EVENT_TYPE_WRITE x', 'EVENT_TYPE_REMOVE x'])
  assert.equal((await call('RemoveWatcher', { watcherId })).status, 200)
  assert.equal((await call('GetWatcherEvents', { watcherId })).code, 'not_found')
})
await test('signed URLs', async () => {
  const up = await fetch(await s.uploadUrl('signed file'), { method: 'POST', body: new Blob(['signed']), headers: { 'Content-Type': 'application/octet-stream' } })
  assert.equal(up.status, 200, await up.text())
  const down = await fetch(await s.downloadUrl('signed file', { useSignatureExpiration: 100 }))
  assert.equal(await down.text(), 'signed')
  assert.equal((await fetch((await s.downloadUrl('signed file')).replace('signed', 'other'))).status, 401)
})
await test('ports', async () => {
  await s.commands.run('cd /tmp && echo served > page && exec python3 -m http.server 8080', { background: true, timeoutMs: 0 })
  let got
  for (let i = 0; i < 100 && got?.status !== 200; i++) {
    got = await get(s, 8080, '/page')
    if (got.status !== 200) await pause(50)
  }
  assert.deepEqual([got.status, got.body.toString()], [200, 'served\n'])
})
await test('pause and connect', async () => {
  await freeze(s)
  assert.equal(await s.isRunning(), false)
  assert.deepEqual(await listed({ state: ['paused'] }), [s.sandboxId])
  await assert.rejects(s.commands.run('true'), named(/Timeout|NotFound/))
  await Promise.all([1, 2, 3, 4].map((i) => Sandbox.connect(s.sandboxId, { timeoutMs: 100000 * i })))
  assert.ok((await s.getInfo()).endAt - Date.now() > 300000)
  assert.equal(await s.files.read('m1'), '1')
})
await test('an image without bash', async () => {
  const tiny = await Sandbox.create('tiny')
  assert.equal((await tiny.commands.run('echo $0 $USER; pwd')).stdout, '/bin/sh user\n/home/user\n')
  await tiny.kill()
})
await test('snapshots', async () => {
  const found = async (options) => (await all(Sandbox.listSnapshots(options))).map((x) => x.snapshotId).sort()
  await s.files.write('kept', 'one')
  const snaps = [await s.createSnapshot(), await s.createSnapshot()].map((x) => x.snapshotId)
  await s.files.write('kept', 'two')
  assert.deepEqual(await found({ sandboxId: s.sandboxId, limit: 1 }), snaps.toSorted())
  const heir = await Sandbox.create(snaps[0])
  assert.equal(await heir.files.read('kept'), 'one')
  assert.deepEqual([(await heir.getInfo()).templateId, (await heir.commands.run('echo $GLOBAL')).stdout], [snaps[0], '\n'])
  await assert.rejects(Sandbox.deleteSnapshot(snaps[0]), /in use/)
  await heir.kill()
  let deleted
  for (let i = 0; i < 100 && !deleted; i++) {
    deleted = await Sandbox.deleteSnapshot(snaps[0]).catch(() => pause(100)) // the sandbox is still being removed
  }
  assert.deepEqual([deleted, await Sandbox.deleteSnapshot(snaps[0]), await Sandbox.deleteSnapshot(snaps[1])], [true, false, true])
  await assert.rejects(Sandbox.create(snaps[0]), /not found/)
  assert.deepEqual(await found(), [])
})
const context = mkdtempSync(path.join(os.tmpdir(), 'agbox-e2b-'))
mkdirSync(path.join(context, 'sub'))
writeFileSync(path.join(context, 'a.txt'), 'copied\n')
writeFileSync(path.join(context, 'sub', 'run.sh'), '#!/bin/sh\necho ran\n')
chmodSync(path.join(context, 'sub', 'run.sh'), 0o755)
symlinkSync('../a.txt', path.join(context, 'sub', 'link'))
let builds = true
try {
  Template({ fileContextPath: context })
} catch (e) {
  assert.match(e.message, /Dynamic require/) // the oldest releases cannot build in ES modules
  builds = false
}
const titled = (name, options) => (process.argv[2].match(/2\.(16|19)/) ? [{ alias: name, ...options }] : [name, options])
const buildTemplate = (t, name, options = {}) => Template.build(t, ...titled(name, options))
const exists = (name) => (Template.exists ?? Template.aliasExists).call(Template, name)
const removeTemplate = (id) => fetch(`${process.env.E2B_API_URL}/templates/${id}`, { method: 'DELETE', headers: { 'X-API-KEY': process.env.E2B_API_KEY } })
if (builds) {
  await test('templates', async () => {
    const t = Template({ fileContextPath: context })
      .fromTemplate('tiny')
      .setEnvs({ A: `1 $B "x" 'y' \\` })
      .runCmd('echo building; id -un; pwd')
      .setUser('root')
      .runCmd(['echo root > /root/file', 'mkdir /opt'])
      .copy('a.txt', '/opt/')
      .copy('sub', '/opt/sub', { mode: 0o755, user: 'user' })
      .setUser('user')
      .setWorkdir('/work dir')
      .runCmd('echo "$A" > here')
      .setStartCmd('echo started by $(id -un) in $(pwd) > /tmp/started', 'test -s /tmp/started')
    assert.equal(await exists('mine'), false)
    const logs = []
    const made = await buildTemplate(t, 'mine', { cpuCount: 1, memoryMB: 512, onBuildLogs: (l) => logs.push(l.message) })
    assert.deepEqual(logs.filter((l) => ['building', 'user', '/home/user'].includes(l)), ['building', 'user', '/home/user'], logs.join('\n'))
    assert.equal(await exists('mine'), true)
    const box = await Sandbox.create('mine')
    const out = await box.commands.run('pwd; cat here; echo "$A"; cat /tmp/started /opt/a.txt; /opt/sub/run.sh; stat -c "%U %a" /opt/a.txt /opt/sub/run.sh; readlink /opt/sub/link')
    const a = `1 $B "x" 'y' \\\n`
    assert.equal(out.stdout, `/work dir\n${a}${a}started by user in /work dir\ncopied\nran\nroot 644\nuser 755\n../a.txt\n`)
    const info = await box.getInfo()
    assert.deepEqual([info.templateId, info.cpuCount, info.memoryMB], ['mine', 1, 512])
    assert.equal((await removeTemplate(made.templateId)).status, 409)
    await box.kill()

    logs.length = 0
    const again = await buildTemplate(t, 'mine', { onBuildLogs: (l) => logs.push(l.message) })
    assert.equal(again.templateId, made.templateId)
    assert.ok(again.buildId !== made.buildId && !logs.includes('building'), logs.join('\n'))
    await assert.rejects(buildTemplate(Template().fromTemplate('mine').runCmd('echo fails; exit 7'), 'broken'), /exit code 7/)
    await assert.rejects(Sandbox.create('broken'), /none of its builds is ready/)
    await assert.rejects(buildTemplate(Template().fromImage('agbox-template:' + made.buildId), 'thief'), /image of this host/)
    for (const name of ['mine', 'broken', 'thief']) {
      let deleted
      for (let i = 0; i < 100 && deleted?.status !== 204; i++) {
        deleted = await removeTemplate(name)
        if (deleted.status !== 204) await pause(100) // the sandbox is still being removed
      }
      assert.equal(deleted.status, 204)
    }
    assert.equal(await exists('mine'), false)
    await assert.rejects(Sandbox.create('mine'), /not found/)
  })
}
await test('kill -9 of the daemon', async () => {
  const cutOff = builds && (await Template.buildInBackground(Template().fromTemplate('tiny').runCmd('echo begun; sleep 600'), ...titled('cut', {})))
  const buildStatus = () => Template.getBuildStatus(cutOff, { logsOffset: 0 })
  for (let i = 0; cutOff && i < 200 && !(await buildStatus()).logEntries.some((l) => l.message === 'begun'); i++) await pause(50)
  const frozen = await Sandbox.create({ timeoutMs: 1000000 })
  await freeze(frozen)
  await s.setTimeout(600000)
  const was = [await s.getInfo(), await Sandbox.getInfo?.(frozen.sandboxId)]
  const silent = await s.commands.run('while [ ! -e /tmp/go ]; do sleep 0.1; done; seq 100000; exit 9', { background: true })
  const cut = assert.rejects(silent.wait())
  const reading = s.commands.run('sleep 60').then(() => 'ended', () => 'failed')
  const creating = Sandbox.create({ metadata: { cut: 'off' } }).then((x) => x.kill(), () => {})
  await kill()
  await Promise.all([cut, creating])
  if (cutOff) {
    const now = await buildStatus()
    assert.deepEqual([now.status, now.logEntries.some((l) => l.message === 'begun')], ['error', true], JSON.stringify(now))
    assert.match(now.reason.message, /interrupted/)
    await buildTemplate(Template().fromTemplate('tiny').runCmd('echo again'), 'cut')
    await (await Sandbox.create('cut')).kill()
    for (let i = 0; i < 100 && (await removeTemplate('cut')).status !== 204; i++) await pause(100) // the sandbox is still being removed
    assert.equal(await exists('cut'), false)
  }
  assert.equal(await reading, 'failed')
  assert.equal(await s.isRunning(), true)
  const is = [await s.getInfo(), await Sandbox.getInfo?.(frozen.sandboxId)]
  assert.deepEqual(is, was)
  await s.files.write('/tmp/go', '')
  const again = await s.commands.connect(silent.pid)
  await assert.rejects(again.wait(), (e) => e.exitCode === 9 && e.stdout.length === 588895 && e.stdout.endsWith('\n100000\n'))
  await Sandbox.connect(frozen.sandboxId)
  await frozen.kill()
})
await test('kill', async () => {
  await s.kill()
  assert.equal(await s.isRunning(), false)
  await assert.rejects(Sandbox.connect(s.sandboxId), named(/NotFound/))
})
rmSync(context, { recursive: true })
finish()
