// strongroom cp: copies files from or to an instance whose host key `strongroom up` has verified. Effects: a process.

import { InvalidArgumentError } from 'commander'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { loadClientDefaults } from '../client-config.ts'
import { findKnownHost } from '../known-hosts.ts'
import { localNames } from './names.ts'
import { addressFor, type CopyEnd, identityOf, runScp } from './openssh.ts'
import { resolveTarget, targetWord, type UserAt, unknownName, withUser } from './target.ts'

type CpOptions = { recursive?: boolean }

/** One side of a copy. `word` names the instance. */
type Side =
  | { readonly kind: 'here'; readonly path: string }
  | ({ readonly kind: 'there'; readonly path: string } & UserAt)

export function addCp(program: Command): void {
  program
    .command('cp')
    .description('copy files from or to an instance that `strongroom up` has verified')
    .argument(
      '<source>',
      'a path here, or [USER@]NAME:PATH; PATH is below the home directory of the agent unless it begins with /',
      sideOf,
    )
    .argument('<destination>', 'as the source; exactly one of the two is NAME:PATH', sideOf)
    .argument('[scp-arguments...]', 'after --: options of scp')
    .option('-r, --recursive', 'copy directories with all that is in them')
    .addHelpText(
      'after',
      `
The host key is the one that \`strongroom up\` verified and wrote to ~/.config/strongroom/known_hosts; no other is accepted.
A path here that has a colon before its first slash needs ./ before it. A copy uses SFTP alone. The files that it fetches
are as trustworthy as what runs in the instance.
Exit code: that of scp. Needs OpenSSH 8.7.
${helpText('strongroom cp notes.txt work:', 'strongroom cp -r work:src/project .', 'strongroom cp work:log.txt /tmp -- -l 8000')}`,
    )
    .runs(copy)
}

function sideOf(text: string): Side {
  const [, word, path = ''] = /^([^/:]*):(.*)$/s.exec(text) ?? []
  if (word === undefined) {
    if (text === '') throw new InvalidArgumentError('It must be a path, or NAME:PATH.')
    return { kind: 'here', path: text }
  }
  if (/[\x00-\x1f\x7f]/.test(path)) throw new InvalidArgumentError('The path has control characters.')
  return { kind: 'there', ...withUser(word, targetWord), path }
}

async function copy(
  run: Run,
  source: Side,
  destination: Side,
  args: readonly string[],
  { recursive = false }: CpOptions,
): Promise<void> {
  const { word, user } = remoteSide(source, destination)
  const { env } = run.io
  const names = localNames(env)
  const service = () => {
    throw unknownName(word)
  }
  const { instance, local, localName } = await resolveTarget(word, { names, api: null, service })
  const knownHost = findKnownHost(names.knownHosts, instance.hostname)
  if (knownHost === null) throw unverified(localName ?? instance.name, instance.hostname)
  const identity = identityOf((await loadClientDefaults(env)).public_key)
  const address = await addressFor(instance.hostname, local?.address ?? null, args)
  const connection = { user, knownHost, identity, address }
  const ends = { source: endOf(source), destination: endOf(destination) }
  run.exitWith(await runScp(run, { ...connection, ...ends, args, isRecursive: recursive }))
}

function remoteSide(source: Side, destination: Side): UserAt {
  if (source.kind === 'there' && destination.kind === 'there') {
    throw new InputFault('both source and destination are in an instance', {
      param: 'destination',
      remedy: 'copy to this machine first, then from it',
    })
  }
  if (source.kind === 'there') return source
  if (destination.kind === 'there') return destination
  throw new InputFault('neither source nor destination is in an instance', {
    param: 'destination',
    remedy: 'write NAME:PATH for the side in the instance, such as work:notes.txt',
  })
}

function endOf(side: Side): CopyEnd {
  return { kind: side.kind, path: side.path }
}

function unverified(name: string, hostname: string): InputFault {
  return new InputFault(`${hostname} has no verified host key on this machine`, {
    param: 'source',
    remedy: `run \`strongroom up ${name} --no-login\`, which verifies it and writes the key`,
  })
}
