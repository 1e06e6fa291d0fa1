// Serves a page from a port of a sandbox. Only requests with the token reach it. A browser on this host opens http://PORT-ID.localhost:3000,
// which is getHost(PORT); programs can name port and sandbox in headers, and need no name server for that.
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create({ timeoutMs: 60_000, network: { allowPublicTraffic: false } })
await sandbox.files.write('site/index.html', 'It works.\n')
await sandbox.commands.run('cd site && exec python3 -m http.server 8080', { background: true, timeoutMs: 0 })
await sandbox.commands.run('until curl -s localhost:8080 >/dev/null; do sleep 0.1; done')

const get = async (headers) => {
  const answer = await fetch(process.env.E2B_SANDBOX_URL + '/index.html', {
    headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '8080', ...headers },
  })
  return `${answer.status} ${(await answer.text()).trim()}`
}
console.log(await get({ 'e2b-traffic-access-token': sandbox.trafficAccessToken }))
console.log((await get({})).slice(0, 3))
await sandbox.kill()

// Prints:
// 200 It works.
// 403
