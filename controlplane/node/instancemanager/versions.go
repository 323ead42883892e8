package instancemanager

import (
	"fmt"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/heard"
)

// The versions of the instance manager's interface that this manager speaks. Processes are started
// and watched by the process service, which every version has and in the same form; the instance
// service, which 4 added, shows the same processes.
const (
	managerAPI    = 4
	managerAPIMin = 1
)

// incompatible returns an error if manager and instance manager have no version in common. The
// versions of the proxy play no part: 0 says that there is none, and everything else is a matter of
// single methods.
func incompatible(api, apiMin int) error {
	if api < managerAPIMin || apiMin > managerAPI {
		return fmt.Errorf("the instance manager speaks versions %d to %d of its interface, this manager %d to %d; "+
			"upgrade the older of the two", apiMin, api, managerAPIMin, managerAPI)
	}
	return nil
}

// observeVersions tells of an instance manager that cannot be used. What runs in it is left alone;
// nothing new is started there.
func observeVersions(condition func(kind string, status v1beta2.ConditionStatus, reason, message string),
	p *heard.Processes) {
	const kind = v1beta2.InstanceManagerConditionCompatible
	if err := incompatible(p.APIVersion, p.APIMinVersion); err != nil {
		condition(kind, v1beta2.ConditionFalse, v1beta2.InstanceManagerReasonIncompatible, err.Error())
		return
	}
	condition(kind, v1beta2.ConditionTrue, "", "")
}
