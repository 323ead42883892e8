package setting

// Settings of category orphan.
const (
	OrphanResourceAutoDeletion            = "orphan-resource-auto-deletion"
	OrphanResourceAutoDeletionGracePeriod = "orphan-resource-auto-deletion-grace-period"
)

var orphanDefinitions = []Definition{
	{
		Name: OrphanResourceAutoDeletion, DisplayName: "Orphan Resource Auto-Deletion",
		Description: "Kinds of orphans that are deleted automatically, with ; between them: replica-data for " +
			"directories, instance for processes.",
		Category: CategoryOrphan, Type: TypeString,
	},
	{
		Name: OrphanResourceAutoDeletionGracePeriod, DisplayName: "Orphan Resource Auto-Deletion Grace Period",
		Description: "Seconds an orphan is kept before it is deleted automatically.",
		Category:    CategoryOrphan, Type: TypeInt, Required: true,
		Default: "300", Range: from(0),
	},
}
