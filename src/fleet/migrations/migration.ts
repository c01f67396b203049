// A step of the directory's schema. Pure.

export type FleetMigration = {
  /** The version of the schema that it makes. */
  readonly to: number
  /** The release that brings it, counted from the first that has fleets. */
  readonly release: number
  readonly name: string
  /** Statements without values. Names need no schema: the search path has it. */
  readonly sql: string
}
