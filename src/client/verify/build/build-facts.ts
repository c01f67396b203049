// The verdict on a build in plain words, and commands to try after FAIL. Pure.

import type { Check } from '../../../attest/verdict.ts'
import type { BuildVerdict } from '../../../verifier/build/build.ts'
import { pinCheckName } from '../../../verifier/pins.ts'
import { hostNames } from '../../verdict/host-text.ts'
import { hasOption } from '../../verdict/next-commands.ts'
import type { Fact, Plain } from '../../verdict/plain.ts'
import { hardwareFacts, launchFacts, readerFacts } from '../../verdict/receipt-facts.ts'
import { isFailed, lackingOptions } from '../pin-commands.ts'

export type BuildWords = {
  readonly found: BuildVerdict
  /** Checks as shown, in the terms of the command line. */
  readonly checks: readonly Check[]
  /** Checks of the last report, by their own names. */
  readonly details: readonly Check[]
  /** The command line of `verify build` for this result. */
  readonly argv: readonly string[]
  /** Files and options that name the expected measurement. */
  readonly sources: readonly string[]
}

export function buildWords(words: BuildWords): Plain {
  const { found, checks, details, argv, sources } = words
  const { completion, report, simulated } = found
  const facts = {
    report: completion?.report ?? report?.report ?? null,
    image: completion?.statement?.image.name ?? null,
    operatorKey: completion?.statement?.operatorKey ?? null,
    checks: [...checks, ...details],
    simulated,
    isOwnImage: found.isOwn,
    sources,
  }
  return {
    act: 'use the artifacts',
    facts: [
      ...artifactFacts(found),
      ...launchFacts(facts).map(([label, text]) => [label === 'runs' ? ('built in' as const) : label, text] as const),
      ...sourceFacts(checks),
      ...readerFacts(facts),
      ['read by', 'its host also sees source and artifacts, which pass through it'],
      ...hardwareFacts(facts),
    ],
    unproved: ['that the source does what it should'],
    next: { ...lackingOptions(argv, checks), ...ownImage(argv, checks) },
  }
}

function artifactFacts({ provenance }: BuildVerdict): Fact[] {
  if (provenance === null) return []
  const names = provenance.subject.map(({ name }) => name)
  return [['you may', `they are what the build made: ${hostNames(names)}`]]
}

/**
 * Returns facts about the source. `source` names the archive or the commit, `request` how it was built, `fetch` what
 * was fetched.
 */
function sourceFacts(checks: readonly Check[]): Fact[] {
  return ['source', 'request', 'fetch'].flatMap(name => {
    const found = checks.find(check => check.name === name && check.outcome === 'pass' && check.reason !== '')
    return found === undefined ? [] : [['built from', `${WORDS[name] ?? ''}${found.reason}`] as const]
  })
}

const WORDS: Readonly<Record<string, string>> = { request: 'with ', fetch: 'fetched: ' }

/** Returns the missing option. An image that was compared lacks only the statement that it is the client's own. */
function ownImage(argv: readonly string[], checks: readonly Check[]) {
  const hasImage = hasOption(argv, '--image') || hasOption(argv, '--igvm')
  if (!isFailed(checks, pinCheckName('measurement')) || !hasImage || hasOption(argv, '--own-image')) return {}
  return { prepared: [], expected: ['--own-image'] }
}
