// strongroom rm: deletes an instance and the name for it. Effects: the network, files.

import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import { clientConfigHelp, loadClientDefaults } from '../client-config.ts'
import { forgetKnownHost } from '../known-hosts.ts'
import { addServiceOptions, readService, type ServiceOptions } from '../verify/service-options.ts'
import { localNames } from './names.ts'
import { createService } from './service.ts'
import { resolveTarget, targetWord, unknownName } from './target.ts'

type RmOptions = ServiceOptions & { yes?: boolean; forget?: boolean }

export function addRm(program: Command): void {
  const command = program
    .command('rm')
    .description('delete an instance with all that is in it, and forget its name')
    .argument('<name>', 'a name of `strongroom ls`, or a whole host name', targetWord)
    .option('--yes', 'do not ask')
    .option('--forget', 'only forget the name on this machine; what runs goes on, and is billed')
  addServiceOptions(command)
    .addHelpText('after', `${clientConfigHelp}${helpText('strongroom rm work', 'strongroom rm k3v9x2ma --yes')}`)
    .runs(remove)
}

async function remove(run: Run, word: string, { yes = false, forget = false, ...options }: RmOptions): Promise<void> {
  const { env } = run.io
  if (forget) return await forgotten(run, word)
  const source = readService(env, options, await loadClientDefaults(env))
  const service = createService(source)
  const names = localNames(env)
  if (names.find(word)?.hostname === null) return await forgotten(run, word)
  const target = await resolveTarget(word, { names, api: source.api.origin, service: () => service })
  const { instance, localName, local } = target
  if (!yes) await confirmed(run, localName === null ? instance.hostname : `${localName} (${instance.hostname})`)
  const record = await service.remove(instance.name)
  if (record !== null && record.hostname !== instance.hostname) {
    throw new AdvisedFault(
      'internal',
      `${service.host} deleted ${record.hostname}, which is not ${instance.hostname}`,
      {
        remedy: 'look at `strongroom ls`: this service contradicts itself',
      },
    )
  }
  // A key of another organization gets 404 too, and the VM runs on.
  if (record === null) throw missing(service.host, instance.hostname, localName)
  await names.alone(() => forgetKnownHost(names.knownHosts, instance.hostname))
  if (localName !== null && local !== null) await names.replace(localName, local, null)
  const text = `${instance.hostname} is ${record.status}; nothing in it can be recovered\n`
  await run.result({ name: localName, instance: instance.name, status: record.status }, text)
}

/** Forgets the name and its host key, without a request. */
async function forgotten(run: Run, name: string): Promise<void> {
  const names = localNames(run.io.env)
  const local = names.find(name)
  if (local === null) throw unknownName(name)
  const { hostname, api } = local
  if (hostname !== null) await names.alone(() => forgetKnownHost(names.knownHosts, hostname))
  await names.replace(name, local, null)
  const shown = hostname === null ? 'an instance without a name, it may be that one' : 'it, it still runs'
  const unfinished = hostname === null ? ' Its creation did not finish.' : ''
  const text = `${name}: forgotten.${unfinished} If \`strongroom ls --api ${api}\` shows ${shown}.\n`
  await run.result({ name, instance: null, status: null }, text)
}

/** Waits for a person's yes. Throws Fault invalid_request without it. */
async function confirmed({ io }: Run, what: string): Promise<void> {
  if (io.ask === undefined) {
    throw new InputFault(`there is no terminal to confirm that ${what} is to be deleted`, {
      param: 'yes',
      remedy: 'add --yes',
    })
  }
  const answer = await io.ask(`Delete ${what} and everything in it? [y/N] `)
  if (/^\s*y(?:es)?\s*$/i.test(answer ?? '')) return
  throw new InputFault('nothing was deleted', { param: 'yes', remedy: 'answer y to delete it' })
}

function missing(host: string, hostname: string, localName: string | null): AdvisedFault {
  const gone = localName === null ? '' : `; if it is gone for good, \`strongroom rm ${localName} --forget\``
  return new AdvisedFault('not_found', `${host} has no instance ${hostname} for this key`, {
    remedy: `check the key and --api: with the key of another organization it may still run, and be billed${gone}`,
  })
}
