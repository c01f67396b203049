// Shell commands that fetch and verify a result. Pure.

import type { Build } from '../../store/directory/build.table.ts'
import { type AskedWords, type PulledImage, verifyCommands } from '../oci/commands.plan.ts'

/** `image`: the boot image of build VMs, as the registry serves it; null: not known yet. */
export function resultCommands(
  { id, nonce, ...asked }: Pick<Build, 'id' | 'nonce'> & AskedWords,
  { baseUrl, image }: { readonly baseUrl: string; readonly image: PulledImage | null },
): string[] {
  return [
    `curl --fail --header "Authorization: Bearer $STRONGROOM_API_KEY" --output ${id}.tar.gz ${baseUrl}/build/${id}/result`,
    ...verifyCommands({ baseUrl, image, project: `${id}.tar.gz`, nonce, asked }),
  ]
}
