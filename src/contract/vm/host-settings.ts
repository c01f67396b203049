// The host's settings for a gateway's VM after a client has verified it, and the worst that each does to that client.
// Pure.
//
// Every field that the control key signs, and of every request of the channel, has a row; the test beside this table
// walks the schemas.

/**
 * `closed`: the VM refuses what would break a promise. `attested`: a receipt or workload.json names it, so that a
 * verifier sees the change. `availability`: the worst is a refusal, a delay or a wrong count of the host's own books.
 * `stated`: the threat model describes the remaining risk.
 */
type HostSettingStanding = 'closed' | 'attested' | 'availability' | 'stated'

type HostSetting = { readonly stands: HostSettingStanding; readonly worst: string }

const availability = (worst: string): HostSetting => ({ stands: 'availability', worst })
const closed = (worst: string): HostSetting => ({ stands: 'closed', worst })
const attested = (worst: string): HostSetting => ({ stands: 'attested', worst })
const stated = (worst: string): HostSetting => ({ stands: 'stated', worst })

const budgeted = availability('402 if a budget is spent, 429 if it has room soon')
const miscount = availability('budgets end sooner or later, GET /v1/usage is wrong')
const unreachable = availability('the VM has other addresses, and clients cannot reach it')
const protocol = closed('it pairs a request with its response; the VM reads nothing else into it')

/** By `control.PATH` of a snapshot, and by `OPERATION.PATH` of a request; `*` stands for any name. */
export const HOST_SETTINGS: Readonly<Record<string, HostSetting>> = {
  'control.revision': stated('a VM that has just started takes an old set, so that a revoked key counts again'),
  'control.keys.prefix': availability('a key is missing: 401'),
  'control.keys.secretSha256': closed(
    'the host can add keys of its own. It only gets what belongs to them: the VM keeps content for the key of its request alone',
  ),
  'control.keys.organizationId': availability('rows and budgets of another organization'),
  'control.keys.instanceId': availability('rows of another instance'),
  'control.keys.requestsPerMinute': availability('429'),
  'control.keys.tokensPerMinute': availability('429'),
  'control.keys.concurrencyMax': availability('429'),
  'control.keys.expiresAtMs': availability('401'),
  'control.keys.models': availability('a model is a 404 for the key'),
  'control.keys.aliases.name': closed('a name of the host’s choice, which stands for no served model'),
  'control.keys.aliases.model': closed('it leads nowhere outside where a model is inside'),
  'control.keys.clientMade': stated(
    'a key that the host minted counts as made by its client; only a client that made its key itself relies on that word',
  ),
  'control.keys.budgetNanoUsd': budgeted,
  'control.keys.budgetTokens': budgeted,
  'control.keys.shortBudgets.day.nanoUsd': budgeted,
  'control.keys.shortBudgets.day.tokens': budgeted,
  'control.keys.shortBudgets.week.nanoUsd': budgeted,
  'control.keys.shortBudgets.week.tokens': budgeted,
  'control.keys.endUserBudget.period': budgeted,
  'control.keys.endUserBudget.nanoUsd': budgeted,
  'control.keys.endUserBudget.usersMax': budgeted,
  'control.keys.endUserBudget.isRequired': availability('400 for a request that names no end user'),
  'control.ignorable': availability('a setting that this gateway does not know has no effect, instead of a refusal'),
  'control.budgets.organizationId': budgeted,
  'control.budgets.budgetNanoUsd': budgeted,
  'control.budgets.budgetTokens': budgeted,
  'control.budgets.shortBudgets.day.nanoUsd': budgeted,
  'control.budgets.shortBudgets.day.tokens': budgeted,
  'control.budgets.shortBudgets.week.nanoUsd': budgeted,
  'control.budgets.shortBudgets.week.tokens': budgeted,
  'control.prices.model': availability('budgets end sooner or later, and bills differ'),
  'control.prices.prompt_usd_per_million': availability('budgets end sooner or later, and bills differ'),
  'control.prices.completion_usd_per_million': availability('budgets end sooner or later, and bills differ'),
  'control.prices.cached_prompt_usd_per_million': availability('budgets end sooner or later, and bills differ'),
  'control.shared': availability('429; without it the key has all of its own limits at this VM, as alone'),
  'control.upstreamKeys.*': stated('another account at an upstream outside, which sees the prompts anyway'),
  'piece.document': protocol,
  'piece.offset': protocol,
  'piece.bytes': closed('a document counts by its digest or signature alone'),
  'workload.sha256': attested('HOST_DATA of the report is this digest'),
  'workload.simulated.measurement': closed('a VM with a report device of its own refuses it'),
  'workload.simulated.operatorKey': closed('a VM with a report device of its own refuses it'),
  'workload.simulated.hostData': closed('a VM with a report device of its own refuses it'),
  'control.sha256': protocol,
  'control.signature': closed('the control key of workload.json must have signed the set'),
  'addresses.hosts.*': stated(
    'an upstream is led elsewhere: TLS, its pin or authority in workload.json decide whether it gets anything',
  ),
  'next.known': protocol,
  'next.booked': availability('rows reported as booked are not sent again: usage is lost to the host’s own books'),
  'next.waitMs': protocol,
  'evidence_for.want': protocol,
  'evidence_for.evidence.report': attested('a receipt with it verifies, or not'),
  'evidence_for.evidence.vek': attested('a receipt with it verifies, or not'),
  'evidence_for.evidence.chain': attested('a receipt with it verifies, or not'),
  'evidence_for.evidence.crl': attested('a receipt with it verifies, or not'),
  'evidence_for.problem': availability('503 on /attestation'),
  'certificate_for.want': protocol,
  'certificate_for.clients': attested('the key is the VM’s own, and its digest is in the receipt'),
  'certificate_for.guests': attested('the key is the VM’s own, and its digest is in the receipt'),
  'certificate_for.named.serverName': attested('the key is the VM’s own, and its digest is in the receipt'),
  'certificate_for.named.cert': attested('the key is the VM’s own, and its digest is in the receipt'),
  'certificate_for.requests': attested('requests are by the VM’s own key, and its digest is in the receipt'),
  'certificate_for.stamp': protocol,
  'certificates.stamp': protocol,
  'spent_for.want': protocol,
  'spent_for.sums.key.requests': miscount,
  'spent_for.sums.key.promptTokens': miscount,
  'spent_for.sums.key.completionTokens': miscount,
  'spent_for.sums.key.costNanoUsd': miscount,
  'spent_for.sums.organization.requests': miscount,
  'spent_for.sums.organization.promptTokens': miscount,
  'spent_for.sums.organization.completionTokens': miscount,
  'spent_for.sums.organization.costNanoUsd': miscount,
  'spent_for.sums.booked': miscount,
  'spent_for.sums.isShared': miscount,
  'spent_for.sums.shares.isKnown': miscount,
  'spent_for.sums.shares.key.spent.requests': miscount,
  'spent_for.sums.shares.key.spent.promptTokens': miscount,
  'spent_for.sums.shares.key.spent.completionTokens': miscount,
  'spent_for.sums.shares.key.spent.costNanoUsd': miscount,
  'spent_for.sums.shares.key.allowed.nanoUsd': miscount,
  'spent_for.sums.shares.key.allowed.tokens': miscount,
  'spent_for.sums.shares.organization.spent.requests': miscount,
  'spent_for.sums.shares.organization.spent.promptTokens': miscount,
  'spent_for.sums.shares.organization.spent.completionTokens': miscount,
  'spent_for.sums.shares.organization.spent.costNanoUsd': miscount,
  'spent_for.sums.shares.organization.allowed.nanoUsd': miscount,
  'spent_for.sums.shares.organization.allowed.tokens': miscount,
  'lower.organizationId': availability('requests of keys with budgets wait until the VM has asked for its part again'),
  'lower.keyPrefix': availability('requests of keys with budgets wait until the VM has asked for its part again'),
  'lower.month': availability('requests of keys with budgets wait until the VM has asked for its part again'),
  'days_for.want': protocol,
  'days_for.sums.rows.day': miscount,
  'days_for.sums.rows.model': miscount,
  'days_for.sums.rows.requests': miscount,
  'days_for.sums.rows.promptTokens': miscount,
  'days_for.sums.rows.completionTokens': miscount,
  'days_for.sums.rows.costNanoUsd': miscount,
  'days_for.sums.isLast': miscount,
  'days_for.sums.booked': miscount,
  'shares_for.want': protocol,
  'shares_for.goodMs': availability('429; more than the key’s own limits is never admitted'),
  'shares_for.grants.keyPrefix': availability('429'),
  'shares_for.grants.share': availability('429; more than the key’s own limits is never admitted'),
  'shares_for.grants.keep': availability('429'),
  'shares_for.grants.moreInMs': availability('Retry-After is wrong'),
  'shares_for.grants.isWanted': availability('the VM repeats the request more often, at most ten times a second'),
  'report.logFrom': protocol,
  'report.metricsFrom': protocol,
  'spans.from': protocol,
  'network.network.address': unreachable,
  'network.network.gateway': unreachable,
  'network.network.v6.address': unreachable,
  'network.network.v6.gateway': unreachable,
  'network.network.v6.gatewayMac': unreachable,
  'network.network.mtuBytes': unreachable,
  'network.network.resolvers': stated('as `addresses.hosts`: TLS, its pin or authority in workload.json decide'),
  /** No field of a schema. */
  clock: stated(
    'expired keys and certificates of upstreams count again; evidence is as fresh as its nonce, whatever the clock',
  ),
}
