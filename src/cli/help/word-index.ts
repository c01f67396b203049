// Words that people type, and the passages of the topics that answer them. `strongroom help WORD` prints these passages
// first. A word that the heading or the bold words of its passage have needs no entry. Pure.

/** `title`: a heading, the bold words that a paragraph or item begins with, or the first cell of a row or table. */
export type IndexPlace = { readonly topic: string; readonly title: string }

type IndexEntry = { readonly words: readonly string[]; readonly places: readonly IndexPlace[] }

const at = (topic: string, title: string): IndexPlace => ({ topic, title })

const makeKeys = at('client', '4. Make your keys')
const logIn = at('instances', 'Create, verify, log in')
const sshKeys = at('instances', 'Several SSH keys, and other signed orders')
const snapshots = at('instances', 'Snapshots: work that outlives the instance')
const noCredentials = at('builds', 'Private repositories and registries')
const hostReadsBuilds = at('builds', 'The host reads the source and the result')
const waivers = at('verify', 'Required checks, and how to waive one')
const report = [at('security', 'How to report'), at('security', 'What counts')]

/** Words in lower case. */
export const WORD_INDEX: readonly IndexEntry[] = [
  { words: ['memory', 'ram', 'disk'], places: [at('pass', 'With PASS the host cannot read the memory of this VM')] },
  { words: ['prompt', 'prompts', 'privacy'], places: [at('pass', 'Can the operator read my prompts?')] },
  { words: ['emulated', 'emulation'], places: [at('pass', 'SIMULATED'), at('client', 'If the appliance is emulated')] },
  {
    words: ['cap', 'egress cap', 'quota', 'traffic', 'bandwidth'],
    places: [at('egress', 'At the cap nothing leaves the VM'), at('egress', 'field of `data.usage`')],
  },
  {
    words: ['bill', 'bills', 'billed', 'billing', 'cost', 'costs', 'invoice', 'invoices'],
    places: [
      at('instances', 'A failed instance costs nothing'),
      at('inference', 'What you pay for'),
      at('budgets', 'Usage'),
    ],
  },
  { words: ['private', 'credential', 'credentials', 'vendor', 'vendoring'], places: [noCredentials] },
  { words: ['password', 'secret', 'secrets', 'token', 'tokens', 'api key'], places: [makeKeys, noCredentials] },
  { words: ['login', 'log in', 'log-in'], places: [logIn, noCredentials] },
  { words: ['browser', 'port', 'localhost'], places: [at('instances', '`strongroom connect`')] },
  { words: ['login-keys', 'colleague', 'no answer'], places: [sshKeys] },
  { words: ['loginkeys', 'work.json'], places: [at('instances', 'One policy for a colleague')] },
  {
    words: ['reach', 'reach.json', 'egress-policy', 'egress policy'],
    places: [at('instances', 'What programs may reach')],
  },
  { words: ['secrets.json'], places: [at('instances', 'Secrets that programs use and cannot read')] },
  { words: ['cron', 'copies', 'age-keygen', 'recipient', 'recipients'], places: [snapshots] },
  { words: ['postpone', 'weekend', 'unused'], places: [at('instances', 'The end of an unused instance')] },
  { words: ['npmjs', 'npm registry'], places: [at('instances', 'Inside the instance')] },
  { words: ['exit 6', 'code 6', 'exit code 6'], places: [at('pass', 'If the verdict is FAIL')] },
  { words: ['known_hosts', 'host key'], places: [at('instances', '`ssh` must not ask about the host key.'), logIn] },
  {
    words: ['git', 'repository', 'repositories', 'github'],
    places: [at('builds', 'Repositories and submodules'), noCredentials, hostReadsBuilds],
  },
  { words: ['source code', 'confidential source'], places: [hostReadsBuilds] },
  {
    words: ['toolchain', 'compiler', 'rust-toolchain.toml'],
    places: [at('builds', 'toolchain'), at('builds', 'The Rust version that your source pins')],
  },
  { words: ['rust', 'rustc', 'nightly'], places: [at('builds', 'The Rust version that your source pins')] },
  { words: ['npm', 'pnpm', 'node'], places: [at('builds', 'npm and pnpm')] },
  { words: ['make'], places: [at('builds', 'A command of your own')] },
  {
    words: ['vulnerability', 'vulnerabilities', 'disclose', 'disclosure', 'cve', 'bug', 'exploit'],
    places: report,
  },
  { words: ['mac', 'macos', 'windows', 'arm', 'laptop'], places: [at('client', '3. Install it')] },
  { words: ['resolve', 'enotfound', 'etc/hosts'], places: [at('client', 'A name does not resolve')] },
  { words: ['maintenance', 'reinstall'], places: [at('fleet', 'Take a host out for repair')] },
  { words: ['smtp', 'webhook', 'webhooks', 'pager'], places: [at('daily', 'Alerts')] },
  { words: ['prometheus', 'scrape', 'grafana'], places: [at('daily', 'Metrics for Prometheus')] },
  { words: ['dump', 'pg_dump'], places: [at('fleet', 'Back up and restore the directory')] },
  { words: ['onboarding', 'handover', 'hand over'], places: [at('daily', 'A new customer')] },
  { words: ['scp', 'rsync', 'rescue', 'rescue_bytes'], places: [at('egress', 'At the cap nothing leaves the VM')] },
  {
    words: [
      ...['any-measurement', 'any-allowlist', 'any-vmpl', 'any-crl', 'any-tcb', 'any-operator-key', 'any-gateway'],
      ...['any-nonce', 'any-source', 'any-pcrs', 'any-rtmr', 'any-gpu', 'any-ocsp', 'any-devtools', 'chain-revocation'],
      ...['pin-measurement', 'pin-allowlist', 'pin-vmpl', 'pin-crl', 'pin-tcb', 'pin-operator-key', 'pin-gateway'],
      ...['pin-pcrs', 'pin-rtmr', 'pin-gpu', 'pin-gpu-ocsp', 'pin-gpu-devtools', 'gpu-devtools'],
    ],
    places: [waivers],
  },
  { words: ['waive-floor', 'minimum-tcb', 'tcb-floor'], places: [at('verify', 'Floors')] },
  { words: ['claude', 'claude code', 'codex', 'opencode'], places: [at('inference', 'Connect your agents')] },
]
