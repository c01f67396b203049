// How to fetch and verify a result, as commands of a shell. Pure.

import type { Build } from '../../store/directory/build.table.ts'
import { type AskedWords, type PulledImage, verifyCommands } from '../oci/commands.plan.ts'

/** `image`: the one that build VMs boot, as the registry serves it; null: not known now. */
export function resultCommands(
  { id, nonce, ...asked }: Pick<Build, 'id' | 'nonce'> & AskedWords,
  { baseUrl, image }: { readonly baseUrl: string; readonly image: PulledImage | null },
): string[] {
  return [
    `curl --fail --header "Authorization: Bearer $STRONGROOM_API_KEY" --output ${id}.tar.gz ${baseUrl}/build/${id}/result`,
    ...verifyCommands({ baseUrl, image, project: `${id}.tar.gz`, nonce, asked }),
  ]
}
