// The operator's files for clients, as service A publishes them. Effects: reads manifests and the authority.

import { join } from 'node:path'
import type { Clock } from '../base/clock.ts'
import type { Config } from '../config/schema.ts'
import { type PublishedFiles, publishedFormat } from '../contract/http/published.ts'
import type { OperatorKey } from '../host/operator-key.ts'
import { readTextOrNull } from '../linux/files.ts'

export type PublishedParts = {
  readonly config: Pick<Config, 'vm' | 'inference' | 'builds' | 'listen'>
  readonly operatorKey: Pick<OperatorKey, 'publicPem'>
  /** Null while the operator's own certificate is served. */
  readonly caFile: string | null
  readonly clock: Pick<Clock, 'monotonicMs'>
}

/** Requests need no key: files are read again after this time, not for each of them. */
const keptMs = 5_000

/** Returns the document as JSON. An image that another one has replaced appears within seconds. */
export function createPublished({ config, operatorKey, caFile, clock }: PublishedParts): () => string {
  const { vm, inference, builds, listen } = config
  const isInVm = listen.inference !== '' && inference.placement === 'vm'
  let text = ''
  let readMs = Number.NEGATIVE_INFINITY
  return () => {
    if (clock.monotonicMs() - readMs < keptMs) return text
    const document: PublishedFiles = {
      format: publishedFormat,
      ca: caFile === null ? null : readTextOrNull(caFile),
      operator_key: operatorKey.publicPem,
      images: {
        instance: manifestIn(vm.image_dir),
        inference: isInVm ? manifestIn(inference.worker.image_dir) : null,
        builder: listen.builds === '' ? null : manifestIn(builds.image_dir),
      },
    }
    text = JSON.stringify(document)
    readMs = clock.monotonicMs()
    return text
  }
}

function manifestIn(directory: string): string | null {
  return readTextOrNull(join(directory, 'manifest.json'))
}
