// strongroom verify policy init: writes a commented policy from an image's manifest and an operator key, or from the
// answers to four questions. Effects: prompts at the terminal; reads files; writes the policy.

import { dirname, relative, resolve } from 'node:path'
import { InvalidArgumentError } from 'commander'
import { parsedJson, withoutComments } from '../../attest/encoding/json.ts'
import { encodePolicy } from '../../attest/policy/encode.ts'
import { policyWithFloors } from '../../attest/policy/floor-policy.ts'
import { FIELDS } from '../../attest/report/report.ts'
import { toHex, utf8 } from '../../base/bytes.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import type { Command, Run } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { pastedHex } from '../../terminal/hex.ts'
import { readingInput } from '../../terminal/input-file.ts'
import { refuseExisting, writeOutput } from '../../terminal/output-file.ts'
import { operatorKeyDigest } from '../trust/operator-key-digest.ts'
import { readImage } from './image-option.ts'
import { policyText } from './policy-text.ts'

type InitOptions = { image?: string; operatorKey?: string; chips?: string; smtOff?: boolean; out?: string }
type Answers = {
  readonly measurements: readonly string[] | 'any'
  /** For each digest what it is. */
  readonly digestNames: ReadonlyMap<string, string>
  readonly idKeyDigest: string
  readonly chips: string
  readonly smtOff: boolean
}

const maxAgeDays = 90

export function addPolicyInit(verify: Command): void {
  verify
    .command('policy')
    .description('write a policy: init')
    .examples('strongroom verify policy init --out policy.json')
    .command('init')
    .description(
      'write a policy with a comment for each field: from an image and an operator key, or, at a terminal without options, from your answers to four questions',
    )
    .option('--image <path|hex>', 'directory or manifest.json of the image, or a launch digest; default: any image')
    .option('--operator-key <key>', 'file of `strongroom operator-key`, or its digest; default: any operator')
    .option('--chips <file|hex>', "the operator's list of `strongroom chips export`, or a chip_id; default: any chip")
    .option('--smt-off', 'refuse hosts with SMT, on which threads of others may share a core')
    .option('--out <file>', 'write to this new file; default: standard output')
    .examples(
      'strongroom verify policy init --out policy.json',
      'strongroom verify policy init --image instance/manifest.json --operator-key operator-key.pub.pem > policy.json',
    )
    .runs(initPolicy)
}

async function initPolicy(run: Run, options: InitOptions): Promise<void> {
  const { out, ...given } = options
  if (out !== undefined) refuseExisting(out, 'out')
  const answers = Object.keys(given).length === 0 ? await askAll(run) : await readAnswers(given)
  const policy = policyOf(answers, out)
  const text = policyText(policy, answers.digestNames)
  // People review the text, and programs read it.
  const read = await readingInput('', () => parsedJson('policy', utf8(withoutComments(text))))
  if (!Bun.deepEquals(read, policy)) throw new Fault('internal', 'the text of the policy is not the policy')
  if (out !== undefined) writeOutput(out, utf8(text))
  await run.result(policy, out === undefined ? text : `${out}: verify with --policy ${out}\n`)
  for (const open of openPins(answers)) await run.hint(open)
}

async function readAnswers({ image, operatorKey, chips, smtOff }: InitOptions): Promise<Answers> {
  return {
    ...(await imageAnswer(image ?? '')),
    idKeyDigest: await keyAnswer(operatorKey ?? ''),
    chips: chips ?? '',
    smtOff: smtOff ?? false,
  }
}

/** Names of launch digests. They become comments in a file that a person reviews. */
const shapeForm = /^([\w.-]{1,64}\/){3}\d{1,4}$/

async function imageAnswer(text: string): Promise<Pick<Answers, 'measurements' | 'digestNames'>> {
  if (text === '') return { measurements: 'any', digestNames: new Map() }
  const digest = pastedHex(text)
  if (digest?.length === FIELDS.measurement[1]) return { measurements: [toHex(digest)], digestNames: new Map() }
  const image = await readImage(text)
  const named = image === 'any' ? [] : Object.entries(image.launchDigests)
  const digestNames = new Map<string, string>()
  for (const [shape, digest] of named) {
    if (!shapeForm.test(shape)) {
      throw new InputFault(
        `--image ${text}: launchDigests: ${JSON.stringify(shape)} is no profile/vehicle/type/vCPUs`,
        {
          param: 'image',
          remedy: 'name the manifest.json that the build of the image wrote',
        },
      )
    }
    const before = digestNames.get(digest)
    digestNames.set(digest, before === undefined ? shape : `${before}, ${shape}`)
  }
  return { measurements: [...digestNames.keys()], digestNames }
}

async function keyAnswer(text: string): Promise<string> {
  return text === '' ? 'any' : toHex(await operatorKeyDigest(text))
}

type Question<T> = { readonly words: string; readonly read: (text: string) => T | Promise<T> }

/** Prompts for the four answers. Fault invalid_request without a terminal. */
async function askAll(run: Run): Promise<Answers> {
  const image = await ask(run, {
    words: 'Which image may run? Its manifest.json or directory, or a launch digest; empty for any: ',
    read: imageAnswer,
  })
  const idKeyDigest = await ask(run, {
    words: 'Whose host? File or digest of the operator key; empty for any: ',
    read: keyAnswer,
  })
  const chips = await ask(run, {
    words: "Which machines? The operator's list of chips, or a chip_id; empty for any: ",
    read: text => text,
  })
  const smtOff = await ask(run, {
    words: 'Refuse hosts with SMT (threads of others share a core)? [y/N] ',
    read: yesNo,
  })
  return { ...image, idKeyDigest, chips, smtOff }
}

function yesNo(text: string): boolean {
  if (/^(y|yes)$/i.test(text)) return true
  if (/^(|n|no)$/i.test(text)) return false
  throw new InvalidArgumentError('Answer y or n.')
}

const triesMax = 3

/** Prompts again after an answer that cannot be read. Fault invalid_request after three, and at the end of input. */
async function ask<T>(run: Run, { words, read }: Question<T>): Promise<T> {
  if (run.io.ask === undefined) {
    throw new InputFault('there is no terminal to answer questions at', {
      param: 'image',
      remedy: 'name --image and --operator-key',
    })
  }
  for (let tries = 1; ; tries += 1) {
    const answer = await run.io.ask(words)
    if (answer === null)
      throw new InputFault('the input ended; nothing was written', { remedy: 'answer each question' })
    try {
      return await read(answer.trim())
    } catch (error) {
      const isAnswer = error instanceof Fault || error instanceof InvalidArgumentError
      if (!isAnswer || tries === triesMax) throw error
      await run.io.stderr(`${messageOf(error)}\n`)
    }
  }
}

/** Returns the JSON form. The path of a list is relative to the policy. */
function policyOf({ measurements, idKeyDigest, chips, smtOff }: Answers, out: string | undefined) {
  const base = policyWithFloors()
  const platformInfo = smtOff ? { ...base.platformInfo, smt: 'forbidden' as const } : base.platformInfo
  return { ...encodePolicy({ ...base, platformInfo }), measurements, idKeyDigest, chipIds: chipIdsOf(chips, out) }
}

function chipIdsOf(chips: string, out: string | undefined): unknown {
  if (chips === '') return 'any'
  const chip = pastedHex(chips)
  if (chip?.length === FIELDS.chipId[1]) return [toHex(chip)]
  return { list: out === undefined ? chips : relative(dirname(resolve(out)), resolve(chips)), maxAgeDays }
}

/** Returns what commands ask for besides, because the policy leaves it open. */
function openPins({ measurements, idKeyDigest, chips }: Answers): readonly string[] {
  const isListed = chips !== '' && pastedHex(chips) === null
  return [
    ...(measurements === 'any'
      ? ['no image is named: every verdict fails until you name measurements, or give --any-measurement']
      : []),
    ...(idKeyDigest === 'any' && isListed ? ['name idKeyDigest: the operator key must have signed the list'] : []),
    ...(idKeyDigest === 'any' && !isListed ? ["any operator's host passes: name idKeyDigest"] : []),
  ]
}
