// placeholder
export function Tenant() {
  return null
}
