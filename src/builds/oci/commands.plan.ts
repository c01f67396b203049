// Shell commands with which a client fetches a build's result, pulls the image, and verifies both. Pure.

import { shellWord } from '../../base/shell-word.ts'
import { optionWords } from '../../contract/http/option-words.ts'
import type { Build } from '../../store/directory/build.table.ts'

export type PulledImage = {
  readonly name: string
  /** Digest of the manifest: `sha256:` and hexadecimal. */
  readonly digest: string
  /** Whether an IGVM file is one of its layers. */
  readonly hasIgvm: boolean
}

/** The request as a verifier's options; the client must replace words in capitals. */
type AskedWords = Pick<
  Build,
  'sourceKind' | 'projectDir' | 'toolchain' | 'options' | 'waivers' | 'fetchCaSha256' | 'cratesMirror'
>

/**
 * Returns commands to fetch and verify a result. `image`: image of build VMs in the registry; null if not known yet.
 */
export function resultCommands(
  { id, nonce, ...asked }: Pick<Build, 'id' | 'nonce'> & AskedWords,
  { baseUrl, image }: { readonly baseUrl: string; readonly image: PulledImage | null },
): string[] {
  return [
    `curl --fail --header "Authorization: Bearer $STRONGROOM_API_KEY" --output ${id}.tar.gz ${baseUrl}/build/${id}/result`,
    ...verifyCommands({ baseUrl, image, project: `${id}.tar.gz`, nonce, asked }),
  ]
}

/**
 * Returns commands to verify. `baseUrl`: the listener's address for clients, without a path. `project`: directory or
 * archive of the result. Without an image only the result is verified, and the measurement comes from a policy.
 */
export function verifyCommands(build: {
  readonly baseUrl: string
  readonly image: PulledImage | null
  readonly project: string
  readonly nonce: string
  readonly asked: AskedWords
}): string[] {
  const { image, project, nonce } = build
  const verify = [`strongroom verify build ${project} --nonce ${nonce}`, ...askedOptions(build.asked)].join(' ')
  if (image === null) return [verify]
  const { host, protocol } = new URL(build.baseUrl)
  const directory = `./${image.name}-image`
  const plain = protocol === 'http:' ? ' --src-tls-verify=false' : ''
  return [
    `skopeo copy${plain} docker://${host}/${image.name}@${image.digest} dir:${directory}`,
    // The host's own image is not a pin: the policy must contain a measurement that the client has from another source.
    `${verify} --policy POLICY${image.hasIgvm ? ` --igvm ${directory}` : ''} --image ${directory}`,
  ]
}

function askedOptions(asked: AskedWords): string[] {
  const { sourceKind, projectDir, toolchain, options, waivers, fetchCaSha256, cratesMirror } = asked
  return [
    sourceKind === 'git' ? '--commit COMMIT' : '--source SOURCE',
    ...(projectDir === null ? [] : [`--project-dir ${shellWord(projectDir)}`]),
    ...(toolchain === null ? [] : [`--toolchain ${toolchain}`]),
    ...optionWords(options).flatMap(({ option, words }) =>
      words.map(word => (word === true ? `--${option}` : `--${option} ${shellWord(word)}`)),
    ),
    ...(waivers ?? []).map(name => `--${name.replaceAll('_', '-')}`),
    ...(fetchCaSha256 === null ? [] : ['--fetch-ca AUTHORITIES']),
    ...(cratesMirror === null ? [] : [`--crates-mirror ${shellWord(cratesMirror)}`]),
  ]
}
