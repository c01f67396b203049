// The command line of `verify build` for a result, derived from that of `build submit`. Pure.

import type { AskedRequest } from '../../verifier/build/question.ts'
import { hasOption } from '../verdict/next-commands.ts'

/** Options that only `build submit` has, each with a value. */
const SUBMIT_OPTIONS = ['--api', '--key-file', '--ca', '--output', '--download-mib', '--log-wait'] as const

export type SubmittedBuild = {
  /** The source as given: a directory, an archive or the address of a repository. */
  readonly source: string
  readonly asked: Pick<AskedRequest, 'source'>
  /** The nonce in hexadecimal. */
  readonly nonce: string
  readonly archive: string
}

export function verifyBuildArgv(argv: readonly string[], { source, asked, nonce, archive }: SubmittedBuild): string[] {
  const words = ['build', 'submit', source]
  const options = withoutSubmitOptions(argv).filter(word => {
    const at = words.indexOf(word)
    if (at !== -1) words.splice(at, 1)
    return at === -1
  })
  const added = [
    ...(hasOption(options, '--nonce') ? [] : ['--nonce', nonce]),
    ...sourceOptions(source, asked.source)
      .filter(([name]) => !hasOption(options, name))
      .flat(),
  ]
  return ['verify', 'build', archive, ...options, ...added]
}

function sourceOptions(source: string, asked: AskedRequest['source']): (readonly [name: string, value: string])[] {
  if (asked === 'any') return []
  if (asked.kind === 'tree') return [['--source', source]]
  return [
    ['--commit', asked.commit],
    ['--repository', source],
  ]
}

function withoutSubmitOptions(argv: readonly string[]): string[] {
  const isOwn = (word: string | undefined) => SUBMIT_OPTIONS.some(option => option === word)
  return argv.filter((word, at) => {
    const isValue = isOwn(argv[at - 1])
    return !isOwn(word) && !isValue && !SUBMIT_OPTIONS.some(option => word.startsWith(`${option}=`))
  })
}
