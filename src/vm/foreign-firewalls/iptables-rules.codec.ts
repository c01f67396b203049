// Chains and rules out of iptables-save(8), of its legacy and its nftables backend. Pure. An option that is not
// understood becomes an unknown match.

import type { Turns } from '../../base/work/turns.ts'
import {
  allOrNull,
  type Chain,
  type Field,
  type Hook,
  type Match,
  parseNetwork,
  type Rule,
  type Value,
  type Verdict,
} from './trace.plan.ts'

const HOOKS: Readonly<Record<string, Hook>> = {
  PREROUTING: 'prerouting',
  INPUT: 'input',
  FORWARD: 'forward',
  POSTROUTING: 'postrouting',
}
/** Tables whose chains filter. A drop in `nat` is rare and not looked for. */
const TABLES = new Set(['filter', 'mangle', 'raw', 'security'])

/** Lines per turn. */
const turnLines = 200

/** `family`: the family to report: `ip` or `ip6` for the nftables backend, `legacy` or `legacy6` for the legacy one. */
export function* readIptables(text: string, family: string): Turns<Chain[]> {
  const chains: (Chain & { rules: Rule[] })[] = []
  let table = ''
  for (const [index, line] of text.split('\n').entries()) {
    if (index % turnLines === turnLines - 1) yield
    if (line.startsWith('*')) table = line.slice(1).trim()
    if (!TABLES.has(table)) continue
    const declared = /^:(\S+) (\S+)/.exec(line)
    if (declared !== null) {
      const [, name = '', policy = ''] = declared
      const hook = policy === '-' ? undefined : HOOKS[name]
      const base: Chain['base'] = hook === undefined ? null : { hook, policy: policy === 'DROP' ? 'drop' : 'accept' }
      chains.push({ family, table, name, base, rules: [] })
    }
    if (!line.startsWith('-A ')) continue
    const [, name, ...words] = wordsOf(line)
    chains.find(chain => chain.table === table && chain.name === name)?.rules.push(ruleOf(words))
  }
  return chains
}

/** iptables-save puts words in double quotes, with a backslash before quotes and backslashes. */
function wordsOf(line: string): string[] {
  const words = line.match(/"(?:[^"\\]|\\.)*"|\S+/g) ?? []
  return words.map(word => (word.startsWith('"') ? word.slice(1, -1).replace(/\\(.)/g, '$1') : word))
}

const OPTIONS: Readonly<Record<string, Field>> = {
  '-i': 'iifname',
  '-o': 'oifname',
  '-s': 'saddr',
  '-d': 'daddr',
  '-p': 'protocol',
  '--sport': 'sport',
  '--sports': 'sport',
  '--dport': 'dport',
  '--dports': 'dport',
  '--ctstate': 'ct_state',
  '--state': 'ct_state',
}

/** Targets that decide nothing here. */
const SILENT: ReadonlySet<string> = new Set(
  'LOG,NFLOG,ULOG,MARK,CONNMARK,TCPMSS,CT,NOTRACK,DSCP,TOS,CHECKSUM,CLASSIFY,TRACE'.split(','),
)

function ruleOf(words: readonly string[]): Rule {
  const matches: Match[] = []
  let isNegated = false
  for (let at = 0; at < words.length; at += 1) {
    const [word = '', next = ''] = [words[at], words[at + 1]]
    const field = OPTIONS[word]
    // Words after the target are its options.
    if (word === '-j' || word === '-g') return { matches, verdict: verdictOf(word, next) }
    if (word === '!') {
      isNegated = true
      continue
    }
    if (word === '-m' || word === '--comment') at += 1
    else if (field !== undefined) {
      const values = valuesOf(field, next)
      matches.push(values === null ? 'unknown' : { field, isNegated, values })
      at += 1
    } else if (word.startsWith('-')) matches.push('unknown')
    isNegated = false
  }
  return { matches, verdict: null }
}

function verdictOf(option: string, target: string): Verdict | null {
  if (target === 'ACCEPT') return { kind: 'accept' }
  if (target === 'DROP' || target === 'REJECT') return { kind: 'drop' }
  if (target === 'RETURN') return { kind: 'return' }
  if (target === 'QUEUE' || target === 'NFQUEUE') return { kind: 'either' }
  if (SILENT.has(target)) return null
  return { kind: option === '-g' ? 'goto' : 'jump', target }
}

/** `--ctstate` also takes DNAT and SNAT, which are no connection states in nftables. */
const STATES = new Set(['NEW', 'ESTABLISHED', 'RELATED', 'INVALID', 'UNTRACKED'])

/** Null: one of them is not understood. */
function valuesOf(field: Field, text: string): Value[] | null {
  const words = field === 'protocol' || field.endsWith('ifname') ? [text] : text.split(',')
  return allOrNull(words.map(word => readValue(field, word)))
}

function readValue(field: Field, text: string): Value | null {
  switch (field) {
    case 'saddr':
    case 'daddr': {
      const network = parseNetwork(text)
      return network === null ? null : { kind: 'network', network }
    }
    case 'sport':
    case 'dport': {
      const found = /^(\d+)(?::(\d+))?$/.exec(text)
      return found === null ? null : { kind: 'range', from: Number(found[1]), to: Number(found[2] ?? found[1]) }
    }
    case 'iifname':
    case 'oifname':
      return text.endsWith('+') ? { kind: 'prefix', text: text.slice(0, -1) } : { kind: 'text', text }
    case 'ct_state':
      return STATES.has(text) ? { kind: 'text', text: text.toLowerCase() } : null
    default:
      return { kind: 'text', text }
  }
}
