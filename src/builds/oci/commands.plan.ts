// How whoever has a build's result pulls the image that it was built in, and verifies both, as commands of a shell. Pure.

export type PulledImage = {
  readonly name: string
  /** Of the manifest: `sha256:` and hexadecimal. */
  readonly digest: string
  /** Whether an IGVM file is one of its layers. */
  readonly hasIgvm: boolean
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
}): string[] {
  const { image, project, nonce } = build
  const verify = `strongroom verify build ${project} --nonce ${nonce}`
  if (image === null) return [verify]
  const { host, protocol } = new URL(build.baseUrl)
  const directory = `./${image.name}-image`
  const plain = protocol === 'http:' ? ' --src-tls-verify=false' : ''
  return [
    `skopeo copy${plain} docker://${host}/${image.name}@${image.digest} dir:${directory}`,
    `${verify}${image.hasIgvm ? ` --igvm ${directory}` : ''} --image ${directory}`,
  ]
}
