// How whoever has a build's result pulls the image that it was built in, and verifies both, as commands of a shell. Pure.

import { shellWord } from '../../base/shell-word.ts'

export type PulledImage = {
  readonly name: string
  /** Of the manifest: `sha256:` and hexadecimal. */
  readonly digest: string
  /** Whether an IGVM file is one of its layers. */
  readonly hasIgvm: boolean
}

/** What a verifier names of the request that was sent; the words in capitals are for the client to fill in, who alone knows them. */
export type AskedWords = {
  readonly sourceKind: 'archive' | 'git'
  readonly projectDir: string | null
  readonly toolchain: string | null
  readonly fetchCaSha256: string | null
  readonly cratesMirror: string | null
}

/**
 * `baseUrl` is what clients reach the listener by, without a path; `project` the directory or archive of the result. Without an image the result
 * alone is verified, and the measurement has to come from a policy.
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
    // What the host itself hands out is no pin: the policy names a measurement that the client has from elsewhere.
    `${verify} --policy POLICY${image.hasIgvm ? ` --igvm ${directory}` : ''} --image ${directory}`,
  ]
}

function askedOptions({ sourceKind, projectDir, toolchain, fetchCaSha256, cratesMirror }: AskedWords): string[] {
  return [
    sourceKind === 'git' ? '--commit COMMIT' : '--source SOURCE',
    ...(projectDir === null ? [] : [`--project-dir ${shellWord(projectDir)}`]),
    ...(toolchain === null ? [] : [`--toolchain ${toolchain}`]),
    ...(fetchCaSha256 === null ? [] : ['--fetch-ca AUTHORITIES']),
    ...(cratesMirror === null ? [] : [`--crates-mirror ${shellWord(cratesMirror)}`]),
  ]
}
