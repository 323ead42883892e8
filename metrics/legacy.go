//go:build !nolegacy

package metrics

import lh "ankole.storage/api/longhorn/v1beta2"

// engineOnly says whether an instance manager is of the older type whose connections the reference
// counts.
func engineOnly(t string) bool { return t == string(lh.InstanceManagerTypeEngine) }
