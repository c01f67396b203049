// Who is calling. Authentication makes one (http/auth); all that is called afterwards trusts it.

import type { KeyScope } from '../store/directory/key.table.ts'
import type { Organization } from '../store/directory/organization.table.ts'

export type Principal = {
  readonly organization: Organization
  /** The public part of the key that was used. */
  readonly keyPrefix: string
  readonly scope: KeyScope
}
