// What the suites share: the release of the SDK that the first argument names, and their talk with the caller: a line "ok ..." or "FAIL ..." for each
// test, and "@kill" to have the daemon killed with -9 and started again, which the caller answers with a line. E2B_ONLY is a pattern of tests to run.
import assert from 'node:assert/strict'
import http from 'node:http'
import readline from 'node:readline'

export const { Sandbox, Template } = await import(process.argv[2])

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]()
export const kill = async () => {
  console.log('@kill')
  await lines.next()
}
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
export const named = (name) => (e) => {
  assert.match(e.constructor.name, name, e.stack)
  return true
}

// within fails when a promise takes longer than ms.
export const within = async (ms, what, promise) => {
  let timer
  const late = new Promise((_, no) => (timer = setTimeout(() => no(new Error(`${what} takes more than ${ms / 1000} s`)), ms)))
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

const only = new RegExp(process.env.E2B_ONLY ?? '')
let failed = 0
export const test = async (name, f) => {
  if (!only.test(name)) return
  const begun = Date.now()
  try {
    const notes = await within(180000, 'the test', f())
    console.log(`ok ${name} ${Date.now() - begun} ms${notes ? ': ' + notes : ''}`)
  } catch (e) {
    failed++
    console.log(`FAIL ${name}: ${e.stack}`)
  }
}
export const finish = () => process.exit(failed ? 1 : 0)

// eventually calls f until it returns something true. Errors: none within 20 s.
export const eventually = async (what, f) => {
  for (const end = Date.now() + 20000; ; await pause(50)) {
    const got = await f()
    if (got) return got
    if (Date.now() > end) throw new Error(`${what}: not within 20 s`)
  }
}

export const all = async (pages) => {
  const found = []
  do found.push(...(await pages.nextItems()))
  while (pages.hasNext)
  return found
}
export const listed = async (query, limit) => (await all(Sandbox.list({ query, limit }))).map((s) => s.sandboxId)

// get requests a path of a port of a sandbox by its host name.
export const get = (s, port, path, headers) =>
  new Promise((yes, no) => {
    const base = new URL(process.env.E2B_SANDBOX_URL)
    const request = http.get({ hostname: base.hostname, port: base.port, path, headers: { ...headers, Host: s.getHost(port) } }, (r) => {
      const parts = []
      r.on('data', (d) => parts.push(d))
      r.on('error', no)
      r.on('end', () => yes({ status: r.statusCode, body: Buffer.concat(parts) }))
    })
    request.on('error', no)
  })
