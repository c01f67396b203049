// The help topics, compiled into the executable from the Markdown beside this file. `strongroom help` and the man pages
// print them. Pure. The first line of a topic is `# NAME: SUMMARY`.

import { assert } from '../../base/assert.ts'
import threeAm from './3am.md' with { type: 'text' }
import api from './api.md' with { type: 'text' }
import backup from './backup.md' with { type: 'text' }
import budgets from './budgets.md' with { type: 'text' }
import buildService from './build-service.md' with { type: 'text' }
import builds from './builds.md' with { type: 'text' }
import client from './client.md' with { type: 'text' }
import config from './config.md' with { type: 'text' }
import configure from './configure.md' with { type: 'text' }
import consoleTopic from './console.md' with { type: 'text' }
import daily from './daily.md' with { type: 'text' }
import egress from './egress.md' with { type: 'text' }
import firstHardware from './first-hardware.md' with { type: 'text' }
import fleet from './fleet.md' with { type: 'text' }
import gateway from './gateway.md' with { type: 'text' }
import inference from './inference.md' with { type: 'text' }
import install from './install.md' with { type: 'text' }
import instances from './instances.md' with { type: 'text' }
import ipv6 from './ipv6.md' with { type: 'text' }
import limits from './limits.md' with { type: 'text' }
import log from './log.md' with { type: 'text' }
import names from './names.md' with { type: 'text' }
import operators from './operators.md' with { type: 'text' }
import verifierPackage from './package.md' with { type: 'text' }
import pass from './pass.md' with { type: 'text' }
import receipts from './receipts.md' with { type: 'text' }
import security from './security.md' with { type: 'text' }
import tdx from './tdx.md' with { type: 'text' }
import threats from './threats.md' with { type: 'text' }
import traces from './traces.md' with { type: 'text' }
import upgrade from './upgrade.md' with { type: 'text' }
import verify from './verify.md' with { type: 'text' }

export const READERS = ['operator', 'client', 'reference', 'threats'] as const
export type Reader = (typeof READERS)[number]

export type Topic = {
  readonly name: string
  readonly reader: Reader
  /** Another reader for whom the topic has a section. */
  readonly alsoFor?: Reader
  readonly summary: string
  readonly text: string
}

const sources: readonly Omit<Topic, 'summary'>[] = [
  { name: 'install', reader: 'operator', text: install },
  { name: 'first-hardware', reader: 'operator', text: firstHardware },
  { name: 'configure', reader: 'operator', text: configure },
  { name: 'daily', reader: 'operator', text: daily },
  { name: 'operators', reader: 'operator', text: operators },
  { name: 'console', reader: 'operator', text: consoleTopic },
  { name: '3am', reader: 'operator', text: threeAm },
  { name: 'egress', reader: 'operator', alsoFor: 'client', text: egress },
  { name: 'names', reader: 'operator', text: names },
  { name: 'ipv6', reader: 'operator', text: ipv6 },
  { name: 'gateway', reader: 'operator', text: gateway },
  { name: 'budgets', reader: 'operator', text: budgets },
  { name: 'traces', reader: 'operator', text: traces },
  { name: 'build-service', reader: 'operator', text: buildService },
  { name: 'log', reader: 'operator', alsoFor: 'client', text: log },
  { name: 'backup', reader: 'operator', text: backup },
  { name: 'upgrade', reader: 'operator', text: upgrade },
  { name: 'fleet', reader: 'operator', text: fleet },
  { name: 'client', reader: 'client', text: client },
  { name: 'instances', reader: 'client', text: instances },
  { name: 'inference', reader: 'client', text: inference },
  { name: 'pass', reader: 'client', text: pass },
  { name: 'receipts', reader: 'client', text: receipts },
  { name: 'builds', reader: 'client', text: builds },
  { name: 'verify', reader: 'client', text: verify },
  { name: 'tdx', reader: 'client', text: tdx },
  { name: 'package', reader: 'client', text: verifierPackage },
  { name: 'config', reader: 'reference', text: config },
  { name: 'api', reader: 'reference', text: api },
  { name: 'limits', reader: 'reference', text: limits },
  { name: 'security', reader: 'threats', text: security },
  { name: 'threats', reader: 'threats', text: threats },
]

export const TOPICS: readonly Topic[] = sources.map(topic => ({ ...topic, summary: summaryOf(topic) }))

function summaryOf({ name, text }: Pick<Topic, 'name' | 'text'>): string {
  const title = `# ${name}: `
  assert(text.startsWith(title), `help topic ${name} begins with "${title}"`)
  return text.slice(title.length, text.indexOf('\n'))
}
