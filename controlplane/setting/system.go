package setting

// Settings of category system info.
const (
	DefaultEngineImage              = "default-engine-image"
	DefaultInstanceManagerImage     = "default-instance-manager-image"
	DefaultBackingImageManagerImage = "default-backing-image-manager-image"
	SupportBundleManagerImage       = "support-bundle-manager-image"
	CurrentLonghornVersion          = "current-longhorn-version"
	LatestLonghornVersion           = "latest-longhorn-version"
	StableLonghornVersions          = "stable-longhorn-versions"
	CRDAPIVersion                   = "crd-api-version"
)

var systemDefinitions = []Definition{
	{
		Name: DefaultEngineImage, DisplayName: "Default Engine Image",
		Description: "Engine image of new volumes, and the one that automatic upgrades lead to.",
		Category:    CategorySystemInfo, Type: TypeString, Required: true, ReadOnly: true,
	},
	{
		Name: DefaultInstanceManagerImage, DisplayName: "Default Instance Manager Image",
		Description: "Image of the Pods of instance managers.",
		Category:    CategorySystemInfo, Type: TypeDeprecated, Required: true, ReadOnly: true,
	},
	{
		Name: DefaultBackingImageManagerImage, DisplayName: "Default Backing Image Manager Image",
		Description: "Image of the Pods that hold backing images.",
		Category:    CategorySystemInfo, Type: TypeDeprecated, Required: true, ReadOnly: true,
	},
	{
		Name: SupportBundleManagerImage, DisplayName: "Support Bundle Manager Image",
		Description: "Image of the Pod that collects support bundles.",
		Category:    CategorySystemInfo, Type: TypeString, Required: true,
	},
	{
		Name: CurrentLonghornVersion, DisplayName: "Current Longhorn Version",
		Description: "Version of the running manager.",
		Category:    CategorySystemInfo, Type: TypeString, ReadOnly: true,
	},
	{
		Name: LatestLonghornVersion, DisplayName: "Latest Longhorn Version",
		Description: "Newest version the upgrade service knows.",
		Category:    CategorySystemInfo, Type: TypeString, ReadOnly: true,
	},
	{
		Name: StableLonghornVersions, DisplayName: "Stable Longhorn Versions",
		Description: "Stable versions the upgrade service knows.",
		Category:    CategorySystemInfo, Type: TypeString, ReadOnly: true,
	},
	{
		Name: CRDAPIVersion, DisplayName: "Custom Resource API Version",
		Description: "Version of the stored objects. A manager with an older one refuses to start.",
		Category:    CategorySystemInfo, Type: TypeString, Required: true, ReadOnly: true,
	},
}
