//go:build !nolegacy

package setting

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// CPU settings of instance managers of types engine and replica, and the one before them.
const (
	GuaranteedEngineCPU         = "guaranteed-engine-cpu"
	GuaranteedEngineManagerCPU  = "guaranteed-engine-manager-cpu"
	GuaranteedReplicaManagerCPU = "guaranteed-replica-manager-cpu"
)

// legacyCPUSumLimit bounds the sum of the two percentages: the sum must be smaller.
const legacyCPUSumLimit = 40

var legacyDefinitions = []Definition{
	{
		Name: GuaranteedEngineCPU, DisplayName: "Guaranteed Engine CPU",
		Description: "Replaced by one setting for each type of instance manager. Its value, if any, is moved into the " +
			"nodes when the system is upgraded.",
		Category: CategoryDangerZone, Type: TypeDeprecated, ReadOnly: true,
	},
	{
		Name: GuaranteedEngineManagerCPU, DisplayName: "Guaranteed Engine Manager CPU",
		Description: "Share of the allocatable CPU of a node, in percent, that each instance manager of type engine " +
			"requests. 0 requests nothing. Together with the share of type replica it must stay below 40. A node can " +
			"override it.",
		Category: CategoryDangerZone, Type: TypeInt, Required: true,
		Default: "12", Range: between(0, 40), Apply: ApplyWhenIdle,
	},
	{
		Name: GuaranteedReplicaManagerCPU, DisplayName: "Guaranteed Replica Manager CPU",
		Description: "Share of the allocatable CPU of a node, in percent, that each instance manager of type replica " +
			"requests. 0 requests nothing. Together with the share of type engine it must stay below 40. A node can " +
			"override it.",
		Category: CategoryDangerZone, Type: TypeInt, Required: true,
		Default: "12", Range: between(0, 40), Apply: ApplyWhenIdle,
	},
}

// EngineCPUMillis is what a value of setting guaranteed-engine-cpu, a number of CPUs, asks for in
// thousandths of a CPU; 0 where there is no value, or none that asks for anything.
func EngineCPUMillis(value string) int {
	cpus, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !(cpus > 0 && cpus <= maxEngineCPUs) {
		return 0
	}
	return int(math.Round(cpus * 1000))
}

// maxEngineCPUs bounds a value of guaranteed-engine-cpu that is believed: no machine has more.
const maxEngineCPUs = 4096

// EngineCPUChosen tells whether a person has chosen the value of setting guaranteed-engine-cpu: it
// is not the 0.25 that older versions had as default.
func EngineCPUChosen(value string) bool { return EngineCPUMillis(value) != 250 }

// CarriedCPU is the value that setting guaranteed-instance-manager-cpu begins with in a system that
// has had one setting for each type of instance manager: the larger share, if a person has chosen
// any of the two. One instance manager of the new type has the processes of both.
func CarriedCPU(stored Values) (value string, ok bool) {
	for _, name := range []string{GuaranteedEngineManagerCPU, GuaranteedReplicaManagerCPU} {
		d, _ := Lookup(name) // one of the table
		if has, there := stored[name]; there && Plain(d, has) != d.Default {
			ok = true
		}
	}
	if !ok {
		return "", false
	}
	larger := max(stored.Int(GuaranteedEngineManagerCPU), stored.Int(GuaranteedReplicaManagerCPU))
	return Normalize(GuaranteedInstanceManagerCPU, strconv.Itoa(larger)), true
}

// legacyAgainst is Against for the two percentages.
func legacyAgainst(name string) string {
	switch name {
	case GuaranteedEngineManagerCPU:
		return GuaranteedReplicaManagerCPU
	case GuaranteedReplicaManagerCPU:
		return GuaranteedEngineManagerCPU
	}
	return ""
}

// checkLegacyCPU refuses a change of one of the two percentages that makes their sum too large. A
// sum that is stored already stays until one of the two is changed.
func checkLegacyCPU(name, value string, others Values) error {
	other := legacyAgainst(name)
	if other == "" {
		return nil
	}
	percent, err := Int(name, value)
	if err != nil {
		return err
	}
	if sum := percent + others.Int(other); sum >= legacyCPUSumLimit {
		return fmt.Errorf("the sum of %s and %s is %d and should be smaller than %d; lower one of them first",
			GuaranteedEngineManagerCPU, GuaranteedReplicaManagerCPU, sum, legacyCPUSumLimit)
	}
	return nil
}
