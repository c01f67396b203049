// How to fetch and verify a result, as commands of a shell. Pure.

import type { Build } from '../../store/directory/build.table.ts'

export function resultCommands({ id, nonce }: Pick<Build, 'id' | 'nonce'>, baseUrl: string): string[] {
  return [
    `curl --fail --header "Authorization: Bearer $STRONGROOM_API_KEY" --output ${id}.tar.gz ${baseUrl}/build/${id}/result`,
    `tar --extract --gzip --one-top-level --strip-components=1 --file ${id}.tar.gz`,
    `strongroom verify build ./${id} --nonce ${nonce}`,
  ]
}
