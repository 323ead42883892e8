package setting

// Settings of data engine v2. Clients, charts and stored objects name them, so they are known; only
// their defaults are possible.
const (
	V2DataEngine                   = "v2-data-engine"
	DataEngineHugepageEnabled      = "data-engine-hugepage-enabled"
	DataEngineMemorySize           = "data-engine-memory-size"
	DataEngineCPUMask              = "data-engine-cpu-mask"
	DataEngineInterruptModeEnabled = "data-engine-interrupt-mode-enabled"
	DataEngineLogLevel             = "data-engine-log-level"
	DataEngineLogFlags             = "data-engine-log-flags"
	DefaultUblkQueueDepth          = "default-ublk-queue-depth"
	DefaultUblkNumberOfQueue       = "default-ublk-number-of-queue"
	LogPath                        = "log-path"
)

// noSecondEngine is why settings of data engine v2 keep their defaults.
const noSecondEngine = "it is of data engine v2, which this system does not have"

var foreignDefinitions = []Definition{
	{
		Name: V2DataEngine, DisplayName: "V2 Data Engine",
		Description: "The data engine on raw block devices, which this system does not have: it cannot be turned on.",
		Category:    CategoryDangerZone, Type: TypeBool, Required: true,
		Default: "false", OnlyDefault: noSecondEngine,
	},
	{
		Name: LogPath, DisplayName: "Log Path",
		Description: "Where instance managers of data engine v2, which this system does not have, write logs on the host.",
		Category:    CategoryDangerZone, Type: TypeString, Required: true,
		Default: "/var/lib/longhorn/logs", OnlyDefault: noSecondEngine,
	},
	foreign(DataEngineHugepageEnabled, "Data Engine Hugepage Enabled", TypeBool, "true"),
	foreign(DataEngineMemorySize, "Data Engine Memory Size", TypeInt, "2048"),
	foreign(DataEngineCPUMask, "Data Engine CPU Mask", TypeString, "0x1"),
	foreign(DataEngineInterruptModeEnabled, "Data Engine Interrupt Mode Enabled", TypeBool, "false"),
	foreign(DataEngineLogLevel, "Data Engine Log Level", TypeString, "Notice"),
	foreign(DataEngineLogFlags, "Data Engine Log Flags", TypeString, ""),
	foreign(DefaultUblkQueueDepth, "Default Ublk Queue Depth", TypeInt, "128"),
	foreign(DefaultUblkNumberOfQueue, "Default Ublk Number Of Queue", TypeInt, "1"),
}

// foreign is a setting that has a value for data engine v2 only.
func foreign(name, displayName string, kind Type, value string) Definition {
	return Definition{
		Name: name, DisplayName: displayName,
		Description: "Belongs to data engine v2, which this system does not have; it keeps its default.",
		Category:    CategoryDangerZone, Type: kind, Required: value != "",
		Default:            joinEngines(map[string]string{foreignDataEngine: value}),
		DataEngineSpecific: true, OnlyDefault: noSecondEngine,
	}
}
