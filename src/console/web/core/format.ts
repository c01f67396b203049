// Formats numbers, sizes, times and money for the page. Pure.

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const

/** Formats a size like the command line: `5.0 GiB`. */
export function bytesText(bytes: number): string {
  const unit = Math.min(units.length - 1, bytes < 1 ? 0 : Math.floor(Math.log2(bytes) / 10))
  const value = bytes / 1024 ** unit
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`
}

const bytesPerGib = 1_073_741_824

/** Formats a size in GiB as a person would type it. */
export function gibOf(bytes: number): string {
  return String(bytes / bytesPerGib)
}

/** Converts a typed number of GiB to bytes; NaN if it is not a number. */
export function bytesOfGib(gib: string): number {
  return Math.round(Number(gib) * bytesPerGib)
}

/** Formats a typed number of GiB for an option of the command line, which accepts only whole numbers. */
export function gibOption(gib: string): string {
  return /^[0-9]+$/.test(gib) ? `${gib}GiB` : String(bytesOfGib(gib))
}

export function countText(count: number): string {
  return count.toLocaleString('en-US')
}

/** Formats dollars from exact text: two places, or more if these would be zeros. */
export function usdText(usd: string): string {
  const value = Number(usd)
  if (value === 0) return '$0'
  if (value < 0.01) return `$${trimmed(value.toFixed(6))}`
  return `$${value.toLocaleString('en-US', { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`
}

/** Formats counts above zero by name: `3 ready, 1 failed`. */
export function countsText(counts: Readonly<Record<string, number>> | null): string {
  if (counts === null) return 'unknown'
  const parts = Object.entries(counts).filter(([, count]) => count > 0)
  return parts.length === 0 ? 'none' : parts.map(([name, count]) => `${countText(count)} ${name}`).join(', ')
}

const steps = [
  { seconds: 60, name: 'second' },
  { seconds: 3_600, name: 'minute', by: 60 },
  { seconds: 86_400, name: 'hour', by: 3_600 },
  { seconds: Number.POSITIVE_INFINITY, name: 'day', by: 86_400 },
] as const

/** Formats the distance from now: `3 minutes ago`, `in 20 days`. */
export function distanceText(atMs: number, nowMs: number): string {
  const seconds = Math.round(Math.abs(nowMs - atMs) / 1000)
  if (seconds < 5) return 'now'
  const text = durationText(seconds)
  return atMs <= nowMs ? `${text} ago` : `in ${text}`
}

export function durationText(seconds: number): string {
  const step = steps.find(row => seconds < row.seconds) ?? steps[3]
  const count = Math.floor(seconds / ('by' in step ? step.by : 1))
  return `${count} ${step.name}${count === 1 ? '' : 's'}`
}

/** Formats an instant: `2026-11-26 14:53:00 UTC`. */
export function instantText(iso: string): string {
  const at = Date.parse(iso)
  if (Number.isNaN(at)) return iso
  return `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`
}

/** Shortens a long id or digest by omitting its middle. */
export function shortText(text: string, chars = 12): string {
  return text.length <= chars * 2 + 1 ? text : `${text.slice(0, chars)}…${text.slice(-4)}`
}

function trimmed(text: string): string {
  return text.replace(/\.?0+$/, '')
}
