// Goal: what this host fetches from others goes through linux/net/outgoing.ts, so that the proxy of the configuration
// holds for it; each module that connects otherwise is here with the reason.

import { expect, test } from 'bun:test'
import { codeOf } from '../source.ts'
import { readTree } from '../tree.ts'

/** `fetch` that is the module's own function, `Bun.connect`, and sockets of Node.js. */
const CONNECTS = [
  /(?<![.#\w$])fetch\(/,
  /\bBun\.(?:connect|udpSocket)\b/,
  /\bnew (?:WebSocket|EventSource|XMLHttpRequest|Socket)\(/,
  /import \{[^}]*\b(?:connect|request|get|createConnection|createSocket|Agent)\b[^}]*\} from 'node:(?:net|tls|https?|http2|dgram)'/,
  /(?:import\(|import \{.*\} from )'(?:pg|nodemailer|acme-client|ssh2)'/,
  /\b(?:getOverTls|getBounded|getByEnvironment)\(/,
]

const unixSocket = 'a Unix socket'
const ownFunction = 'calls a function of this name that it was given'
const inVm = 'runs in a VM, which has no proxy'
const ofFleet = 'to the hosts and the database of the fleet'
const client = 'runs at a client, by the variables of its environment'
const trial = `${client}; init, whose trial calls it, removes them`
const upstream = 'prompts, and evidence of upstreams'

const REASONS: Readonly<Record<string, string>> = {
  'src/broker/resolver.ts': inVm,
  'src/broker/secrets/terminate.ts': inVm,
  'src/broker/upstream.ts': inVm,
  'src/builder/network.ts': inVm,
  'src/builder/nix/run.ts': inVm,
  'src/builder/node/run.ts': inVm,
  'src/builds/fetch/proxy.ts': 'connects only to public addresses of listed hosts, which a proxy would look up itself',
  'src/cli/daemon-client.ts': unixSocket,
  'src/cli/fleet/share/request.ts': ofFleet,
  'src/client/build/client.ts': client,
  'src/client/collateral/download.ts': client,
  'src/client/instances/service.ts': client,
  'src/client/log/remote.ts': client,
  'src/client/orders/published-wait.ts': 'runs at a client: directly, as ssh does',
  'src/client/setup/published.ts': client,
  'src/client/verify/gateway.ts': client,
  'src/client/verify/instance-source.ts': trial,
  'src/client/verify/keys/gateway-key.ts': client,
  'src/console/web/core/live.ts': 'runs in a browser',
  'src/console/web/core/request.ts': 'runs in a browser',
  'src/enclave-host/verify.ts': 'to a VM of this host',
  'src/fleet/driver.ts': ofFleet,
  'src/guest/gateway/unattested.ts': inVm,
  'src/guest/orders/reach.ts': unixSocket,
  'src/guest/published/serve.ts': 'to a program of its own VM',
  'src/guest/verify/command.ts': unixSocket,
  'src/host/kds/kds.ts': 'gives getBounded the function to send with',
  'src/host/network/dns-udp.ts': 'DNS',
  'src/host/network/ssh-probe.ts': 'to a VM of this host',
  'src/host/qemu/unix-socket.ts': unixSocket,
  'src/http/acme/order.ts': 'its transport sends by outgoing.ts',
  'src/inference/gateway/handler.ts': ownFunction,
  'src/inference/relay/forward.ts': ownFunction,
  'src/inference/upstream/attested/verify.ts': upstream,
  'src/inference/upstream/connect.ts': upstream,
  'src/inference/worker/golden.ts': unixSocket,
  'src/inference/worker/health.ts': unixSocket,
  'src/linux/libc/sockets.ts': 'takes descriptors that are open already',
  'src/linux/net/bounded-http.ts': 'sends by the function of its caller; its fetch is for clients',
  'src/linux/net/dns-ask.ts': 'DNS',
  'src/linux/net/outgoing.ts': 'the one way out',
  'src/linux/net/tls-get.ts': 'its callers are in this list',
  'src/linux/net/tunnel.ts': client,
  'src/operator/access/socket.ts': unixSocket,
  'src/operator/alerts/mail.ts': 'SMTP, which few proxies carry',
  'src/verifier/fetch/node-sender.ts': client,
  'src/verifier/fetch/node-transport.ts': 'runs at a client: prompts go directly',
  'src/verifier/fetch/web-transport.ts': 'runs in a browser',
}

test('goal: each module that connects by itself has a reason', () => {
  const found = [...readTree('src/**/*.ts', 'src/**/*.tsx')].flatMap(([path, text]) => {
    const code = codeOf(text)
    // codeOf blanks the names of modules, which imports need.
    return CONNECTS.some(pattern => (pattern.source.includes('import') ? pattern.test(text) : pattern.test(code)))
      ? [path]
      : []
  })
  expect(found).toEqual(Object.keys(REASONS))
})
