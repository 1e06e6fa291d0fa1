// Kills the daemon with -9 in the middle of each kind of call of the SDK. A call that is cut off fails with a clear error or goes on. Afterwards nothing is
// lost and nothing ran twice.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { Sandbox, all, eventually, finish, get, kill, listed, named, pause, test, within } from './harness.mjs'

const sha = (data) => createHash('sha256').update(data).digest('hex')
const seq = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i + '\n').join('')
const big = Buffer.from(new Uint8Array(8 << 20).map((_, i) => (i * 7919) % 251))
const seen = new Set()

// clear checks the error of a call that the kill cut off: it has a text, and does not say that something is gone, has ended or is forbidden.
const clear = (e) => {
  assert.ok(e instanceof Error && e.message, `not a clear error: ${e}`)
  assert.doesNotMatch(e.constructor.name, /NotFound|Exit|Auth|Argument|Assertion/, e.stack)
  seen.add(`${e.constructor.name}: ${e.message.split('\n')[0].slice(0, 100)}`)
}

// cut makes a call, and kills the daemon ms later. It returns {value} or {error}.
const cut = async (ms, call) => {
  const done = call().then((value) => ({ value }), (error) => ({ error }))
  await pause(ms)
  await kill()
  const got = await within(20000, 'a call that was cut off', done)
  if (got.error) clear(got.error)
  return got
}

// moments are n random times, one in each n-th of a range in ms.
const moments = (n, ms) => Array.from({ length: n }, (_, i) => Math.round(((i + Math.random()) * ms) / n))
const took = (outcomes) => outcomes.map(([ms, r, note]) => `${ms} ms ${r.error ? 'failed' : 'went on'}${note ?? ''}`).join(', ')
const timed = async (f) => {
  const begun = Date.now()
  await f()
  return Date.now() - begun
}
const endAt = async (x) => (await Sandbox.getInfo(x.sandboxId)).endAt.getTime()
const gone = (x) => assert.rejects(Sandbox.connect(x.sandboxId), named(/NotFound/))

// counter is a process that writes a line ten times a second. It must be the same one as long as the sandbox has its memory.
const counter = async (x) => {
  const { pid } = await x.commands.run('echo begun >>/tmp/begun; while :; do echo tick >>/tmp/ticks; sleep 0.1; done', { background: true, timeoutMs: 0 })
  const ticks = async () => Number((await x.commands.run('cat /tmp/ticks 2>/dev/null | wc -l')).stdout)
  return async () => {
    assert.ok((await x.commands.list()).some((p) => p.pid === pid), 'the process is gone')
    const before = await ticks()
    await eventually('the process goes on', async () => (await ticks()) > before)
    assert.equal((await x.commands.run('cat /tmp/begun')).stdout, 'begun\n')
  }
}

const s = await Sandbox.create({ timeoutMs: 1000000, network: { allowPublicTraffic: false } })
const createMs = await timed(async () => (await Sandbox.create()).kill())

await test('create', async () => {
  const outcomes = []
  for (const ms of moments(4, createMs)) {
    const scene = `create ${ms}`
    const got = await cut(ms, () => Sandbox.create({ timeoutMs: 600000, metadata: { scene } }))
    outcomes.push([ms, got])
    const ids = await listed({ metadata: { scene } })
    assert.ok(ids.length <= 1, `one create has made ${ids}`)
    if (got.value) assert.deepEqual(ids, [got.value.sandboxId])
    for (const id of ids) {
      const x = await Sandbox.connect(id, { timeoutMs: 1000 }) // its create goes on
      assert.equal((await x.commands.run('echo made')).stdout, 'made\n')
      const { startedAt, endAt } = await x.getInfo()
      assert.ok(endAt - startedAt >= 600000 && endAt - startedAt < 620000, `it lives ${endAt - startedAt} ms`)
      assert.equal(await x.kill(), true)
    }
  }
  return took(outcomes)
})

// printer counts its runs, writes the lines from 1000 to 100999 within some two seconds, and then runs more.
const printed = seq(1000, 100999)
const printer = (name, more) => `echo ran >>/tmp/ran-${name}; for i in $(seq 100); do seq "$i"000 "$i"999; sleep 0.02; done; ${more}exit 7`
const printedAll = async (pid) => {
  const handle = await s.commands.connect(pid)
  await assert.rejects(handle.wait(), (e) => {
    assert.deepEqual([e.exitCode, e.stdout?.length, sha(e.stdout ?? '')], [7, printed.length, sha(printed)], e.stack)
    return true
  })
}

await test('run', async () => {
  const outcomes = []
  for (const ms of [...moments(3, 60), 600 + Math.random() * 600]) {
    const name = `run-${Math.round(ms)}`
    let out = ''
    const released = `until test -e /tmp/release-${name}; do sleep 0.05; done; ` // so that it runs until it is listed
    const got = await cut(ms, () => s.commands.run(printer(name, released), { onStdout: (d) => void (out += d) }))
    assert.ok(got.error, 'the stream outlived the daemon')
    assert.ok(printed.startsWith(out), 'what came before the kill is not the start of the output')
    const found = (await s.commands.list()).filter((p) => p.args.some((a) => a.includes(name)))
    if (found.length > 0) {
      assert.equal(found.length, 1)
      await s.commands.run(`touch /tmp/release-${name}`)
      await printedAll(found[0].pid)
    } else {
      assert.equal(out, '')
    }
    outcomes.push([Math.round(ms), got, found.length > 0 ? ', and it ran' : ''])
    const runs = (await s.commands.run(`cat /tmp/ran-${name} 2>/dev/null | wc -l`)).stdout
    assert.equal(runs, `${found.length}\n`, 'how often it ran')
  }
  return took(outcomes)
})

await test('background, connect by pid', async () => {
  const { pid, ...handle } = await (async () => {
    const h = await s.commands.run(printer('bg', ''), { background: true })
    const ended = h.wait()
    ended.catch(() => {})
    return { pid: h.pid, ended }
  })()
  await kill()
  await assert.rejects(handle.ended, (e) => (clear(e), true))
  const again = (await s.commands.connect(pid)).wait()
  again.catch(() => {})
  await kill()
  await assert.rejects(again, (e) => (clear(e), true))
  await printedAll(pid)
  await printedAll(pid)
  const quick = await s.commands.run('sleep 0.2; seq 1000 100999; exit 7', { background: true })
  quick.wait().catch(() => {})
  await kill() // it ends while the daemon is away or just after
  await printedAll(quick.pid)
  assert.equal((await s.commands.run('cat /tmp/ran-bg')).stdout, 'ran\n')
})

await test('standard input', async () => {
  const { pid } = await s.commands.run('cat >/tmp/input; exit 4', { background: true, stdin: true, timeoutMs: 0 }).then((h) => (h.wait().catch(() => {}), h))
  const pieces = []
  let over = false
  const sending = (async () => {
    while (!over) {
      const text = `<${pieces.length}>`.padEnd(1 + Math.floor(Math.random() ** 4 * 300000), 'x') + '\n'
      const piece = { text, taken: false }
      pieces.push(piece)
      await s.commands.sendStdin(pid, text).then(() => (piece.taken = true), async (e) => {
        clear(e)
        await eventually('the daemon is back', () => s.isRunning().catch(() => false))
      })
    }
  })()
  for (const ms of moments(4, 1200)) {
    await pause(ms)
    await kill()
  }
  over = true
  await sending
  const handle = await s.commands.connect(pid)
  await s.commands.closeStdin(pid)
  await assert.rejects(handle.wait(), (e) => e.exitCode === 4)
  // Each piece is there once and in order if its call succeeded, else a part of it, or nothing.
  const input = await s.files.read('/tmp/input')
  let at = 0
  for (const [i, { text, taken }] of pieces.entries()) {
    let n = 0
    while (n < text.length && input[at + n] === text[n]) n++
    if (n < text.length && n > 0 && !input.startsWith(`<${i}>`.slice(0, text.length), at)) n = 0 // the "<" of the next one
    assert.ok(n === text.length || !taken, `piece ${i} of ${pieces.length} was taken, and ${n} of ${text.length} bytes are there`)
    at += n
  }
  assert.equal(at, input.length, 'there is more input than was sent')
  return `${pieces.length} pieces, ${pieces.filter((p) => !p.taken).length} failed`
})

await test('pty', async () => {
  const text = (d) => new TextDecoder().decode(d)
  const bytes = (t) => new TextEncoder().encode(t)
  let out = ''
  const pty = await s.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: (d) => void (out += text(d)) })
  const ended = pty.wait()
  ended.catch(() => {})
  await s.pty.sendInput(pty.pid, bytes('kept=me$$; echo "<$kept>"\n'))
  await eventually('it prints', () => /<me\d+>/.test(out))
  await cut(0, () => s.pty.sendInput(pty.pid, bytes('\n')))
  await assert.rejects(ended, (e) => (clear(e), true))
  let more = ''
  const again = await s.pty.connect(pty.pid, { timeoutMs: 0, onData: (d) => void (more += text(d)) })
  await s.pty.resize(pty.pid, { cols: 99, rows: 11 })
  await s.pty.sendInput(pty.pid, bytes('stty size; echo "[$kept]"; exit 7\n'))
  await assert.rejects(again.wait(), (e) => e.exitCode === 7)
  assert.match(more, /11 99/)
  assert.equal(more.match(/\[(me\d+)\]/)?.[1], out.match(/<(me\d+)>/)[1], 'another shell')
  assert.ok(more.startsWith(out), 'a connect gives all output from the start')
})

await test('write a file', async () => {
  const outcomes = []
  const usual = await timed(() => s.files.write('/tmp/usual', new Blob([big])))
  for (const ms of moments(5, usual)) {
    const name = `/tmp/written-${outcomes.length}`
    const got = await cut(ms, () => s.files.write(name, new Blob([big])))
    outcomes.push([ms, got])
    if (!got.value) await s.files.write(name, new Blob([big]))
    await pause(200) // for what is left of the first write, if anything were
    assert.equal((await s.commands.run(`sha256sum <${name}`)).stdout.slice(0, 64), sha(big))
  }
  return took(outcomes)
})

await test('read a file', async () => {
  const outcomes = []
  const read = () => s.files.read('/tmp/usual', { format: 'bytes' })
  for (const ms of moments(5, await timed(read))) {
    const got = await cut(ms, read)
    outcomes.push([ms, got])
    if (got.value) assert.equal(sha(got.value), sha(big))
  }
  assert.equal(sha(await read()), sha(big))
  return took(outcomes)
})

await test('watch', async () => {
  await s.files.makeDir('w')
  for (const ms of moments(2, 100)) {
    const events = []
    let ended
    const exit = new Promise((yes) => (ended = yes))
    await s.files.watchDir('w', (e) => void events.push(`${e.type} ${e.name}`), { timeoutMs: 0, onExit: ended })
    await s.files.write(`w/x${ms}`, '1')
    await eventually('an event', () => events.includes(`write x${ms}`))
    await pause(ms)
    await kill()
    clear(await within(20000, 'the end of a watch', exit))
  }
  const got = await cut(3, () => s.files.watchDir('w', () => {}))
  await got.value?.stop()
})

await test('list', async () => {
  const others = await Promise.all([1, 2, 3].map(() => Sandbox.create({ timeoutMs: 600000 })))
  const want = [s, ...others].map((x) => x.sandboxId).sort()
  let over = false
  const counts = { complete: 0, failed: 0 }
  const listing = (async () => {
    while (!over) {
      const ids = await listed({}, 2).catch((e) => clear(e))
      if (!ids) {
        counts.failed++
        await pause(10)
        continue
      }
      assert.deepEqual(ids.sort(), want)
      counts.complete++
    }
  })()
  for (const ms of moments(3, 300)) {
    await pause(ms)
    await kill()
  }
  over = true
  await listing
  await Promise.all(others.map((x) => x.kill()))
  return `${counts.complete} complete, ${counts.failed} failed`
})

await test('setTimeout', async () => {
  const outcomes = []
  for (const ms of moments(4, 12)) {
    const seconds = 700 + 10 * outcomes.length
    const before = await endAt(s)
    const begun = Date.now()
    const got = await cut(ms, () => s.setTimeout(seconds * 1000))
    outcomes.push([ms, got])
    const after = await endAt(s)
    const set = Math.abs(after - begun - seconds * 1000) < 1500
    assert.ok(set || (got.error && after === before), `${got.error ?? 'it was set'}, and the deadline is ${new Date(after)}`)
    await kill()
    assert.equal(await endAt(s), after, 'a restart has moved the deadline')
  }
  return took(outcomes)
})

const p = await Sandbox.create({ timeoutMs: 600000 })
const sameProcess = await counter(p)
const stateOf = async (x) => (await Sandbox.getInfo(x.sandboxId)).state

await test('pause', async () => {
  const outcomes = []
  for (const ms of moments(4, 150)) {
    const before = await endAt(p)
    const got = await cut(ms, () => p.pause())
    outcomes.push([ms, got])
    if (got.value) assert.equal(await stateOf(p), 'paused')
    else await p.pause() // false if it went on
    assert.equal(await stateOf(p), 'paused')
    assert.equal(await endAt(p), before, 'a pause has moved the deadline')
    assert.equal(await p.isRunning(), false)
    await Sandbox.connect(p.sandboxId, { timeoutMs: 600000 })
    await sameProcess()
  }
  return took(outcomes)
})

await test('four connects', async () => {
  const outcomes = []
  for (const ms of moments(4, 200)) {
    assert.equal(await p.pause(), true)
    const begun = Date.now()
    const timeouts = [1000, 2000, 3000, 4000].map((t) => (t + outcomes.length) * 1000)
    const calls = timeouts.map((t) => Sandbox.connect(p.sandboxId, { timeoutMs: t }).then(() => t))
    const got = await cut(ms, async () => {
      const ends = await Promise.allSettled(calls)
      ends.forEach((e) => e.reason && clear(e.reason))
      const done = ends.flatMap((e) => e.value ?? [])
      if (done.length === 0) throw ends[0].reason
      return done
    })
    outcomes.push([ms, got])
    await Sandbox.connect(p.sandboxId, { timeoutMs: 1000 })
    const left = (await endAt(p)) - begun
    assert.ok(left >= Math.max(0, ...(got.value ?? [])), `${left} ms are left, and connects with ${got.value} ms succeeded`)
    await sameProcess()
  }
  return took(outcomes)
})
await p.kill()

await test('kill', async () => {
  const outcomes = []
  for (const ms of moments(4, 40)) {
    const x = await Sandbox.create({ timeoutMs: 600000 })
    const got = await cut(ms, () => x.kill())
    outcomes.push([ms, got])
    if (got.error) await x.kill()
    else assert.equal(got.value, true)
    await gone(x)
    assert.equal(await x.kill(), false)
  }
  return took(outcomes)
})

const snapshots = async () => (await all(Sandbox.listSnapshots())).map((x) => x.snapshotId)

await test('snapshots: create', async () => {
  const outcomes = []
  await s.files.write('kept', 'one')
  const usual = await timed(() => s.createSnapshot())
  for (const ms of moments(4, usual)) {
    const before = await snapshots()
    const got = await cut(ms, () => s.createSnapshot())
    outcomes.push([ms, got])
    const made = (await snapshots()).filter((id) => !before.includes(id))
    assert.ok(made.length <= 1, `one call has made ${made}`)
    if (got.value) assert.deepEqual(made, [got.value.snapshotId])
    assert.equal(await s.files.read('kept'), 'one') // it is not left frozen
  }
  const [newest] = await snapshots()
  const heir = await Sandbox.create(newest)
  assert.equal(await heir.files.read('kept'), 'one')
  await heir.kill()
  return took(outcomes)
})

await test('snapshots: list, delete', async () => {
  const outcomes = []
  for (const ms of moments(3, 30)) {
    const want = await snapshots()
    const got = await cut(ms, snapshots)
    if (got.value) assert.deepEqual(got.value, want)
  }
  for (const ms of moments(3, 60)) {
    const { snapshotId } = await s.createSnapshot()
    const got = await cut(ms, () => Sandbox.deleteSnapshot(snapshotId))
    outcomes.push([ms, got])
    if (got.error) await Sandbox.deleteSnapshot(snapshotId)
    else assert.equal(got.value, true)
    assert.equal(await Sandbox.deleteSnapshot(snapshotId), false)
    assert.ok(!(await snapshots()).includes(snapshotId))
  }
  for (const id of await snapshots()) {
    await eventually('the sandbox that was made from it is gone', () => Sandbox.deleteSnapshot(id).catch((e) => assert.match(e.message, /in use/)))
  }
  assert.deepEqual(await snapshots(), [])
  return took(outcomes)
})

await test('ports', async () => {
  const outcomes = []
  const server = await s.commands.run('cd /tmp && exec python3 -m http.server 8080', { background: true, timeoutMs: 0 })
  server.wait().catch(() => {})
  const token = { 'e2b-traffic-access-token': s.trafficAccessToken }
  const load = () => get(s, 8080, '/usual', token)
  await eventually('it serves', async () => (await load()).status === 200)
  for (const ms of moments(4, await timed(load))) {
    const got = await cut(ms, load)
    outcomes.push([ms, got])
    if (got.value) assert.deepEqual([got.value.status, sha(got.value.body)], [200, sha(big)])
    const again = await load()
    assert.deepEqual([again.status, sha(again.body)], [200, sha(big)])
    assert.equal((await get(s, 8080, '/usual')).status, 403)
    assert.equal((await get(s, 8080, '/usual', { 'e2b-traffic-access-token': 'x' })).status, 403)
  }
  const same = await Sandbox.connect(s.sandboxId)
  assert.equal(same.trafficAccessToken, s.trafficAccessToken)
  assert.equal(await s.commands.kill(server.pid), true)
  return took(outcomes)
})

await test('200 creates that the client aborts', async () => {
  let n = 0
  let made = 0
  const client = async () => {
    while (n++ < 200) {
      const signal = AbortSignal.timeout(Math.round(Math.random() ** 2 * 4 * createMs))
      const x = await Sandbox.create({ timeoutMs: 600000, signal }).catch(() => {})
      if (x) {
        made++
        await x.kill()
      }
    }
  }
  await Promise.all(Array.from({ length: 8 }, client))
  // The answer to a create may be on its way when its client leaves. That takes a thousandth of the time of a create.
  let left
  await eventually('the rest is deleted', async () => (left = (await listed({})).filter((id) => id !== s.sandboxId)).length <= 2)
  await Promise.all(left.map((id) => Sandbox.kill(id)))
  return `${made} were made, ${left.length} left`
})

await test('1,000 commands, 8 at a time', async () => {
  let n = 0
  const client = async () => {
    for (let i = n++; i < 1000; i = n++) {
      const r = await s.commands.run(`echo ${i}; echo e${i} >&2`)
      assert.deepEqual([r.exitCode, r.stdout, r.stderr], [0, `${i}\n`, `e${i}\n`])
    }
  }
  await Promise.all(Array.from({ length: 8 }, client))
})

await test('nothing is left', async () => {
  assert.deepEqual(await s.commands.list(), [])
  assert.deepEqual(await listed({ state: ['running', 'paused'] }), [s.sandboxId])
  assert.equal(await s.kill(), true)
  await gone(s)
  assert.deepEqual(await snapshots(), [])
})
console.log([...seen].sort().map((e) => 'error of a call that was cut off: ' + e).join('\n'))
finish()
