//go:build !nolegacy

package e2e

import (
	"context"
	"fmt"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "ankole.storage/api/longhorn/v1beta2"
)

// drained (A9): the budgets of older instance managers answer a drain as those of type aio do. A
// node with an engine refuses under each policy. One with replicas alone, which have copies
// elsewhere, lets its instance managers go unless the policy moves replicas first.
func (u *attachedUpgrade) drained(t *testing.T) {
	const policy = "node-drain-policy"
	d := &drainer{cluster: u.cluster, ks: u.ks}
	for value, third := range map[string]string{
		"block-if-contains-last-replica":              "",
		"allow-if-replica-is-stopped":                 "",
		"always-allow":                                "",
		"block-for-eviction-if-contains-last-replica": "",
		"block-for-eviction":                          longhorn.InstanceManagerReasonReplicaOnNode,
	} {
		u.setting(policy, value)
		for _, row := range []struct {
			node, reason string
			kinds        []longhorn.InstanceManagerType
		}{
			{u.home, longhorn.InstanceManagerReasonEngineOnNode, []longhorn.InstanceManagerType{
				longhorn.InstanceManagerTypeEngine, longhorn.InstanceManagerTypeReplica}},
			{u.third, third, []longhorn.InstanceManagerType{longhorn.InstanceManagerTypeReplica}},
		} {
			d.cordon(row.node, true)
			for _, kind := range row.kinds {
				u.answersDrain(row.node, kind, value, row.reason)
			}
			d.cordon(row.node, false)
			for _, kind := range row.kinds {
				u.guardedAgain(row.node, kind)
			}
		}
	}
	u.setting(policy, "block-if-contains-last-replica")
	u.goesOn()
	u.undisturbed()
}

// answersDrain waits until an instance manager says why it may not be evicted, "" if it may, and
// until the Eviction API says the same. Nothing is evicted.
func (u *attachedUpgrade) answersDrain(node string, kind longhorn.InstanceManagerType, policy, reason string) {
	u.t.Helper()
	u.eventually(fmt.Sprintf("%s, %s on %s: %q", policy, kind, node, reason), func(ctx context.Context) error {
		im := u.legacy(node, kind)
		c := longhorn.FindCondition(im.Status.Conditions, longhorn.InstanceManagerConditionDrainAllowed)
		if reason == "" && c.Status != longhorn.ConditionTrue || reason != "" && c.Reason != reason {
			return fmt.Errorf("condition %+v", c)
		}
		err := u.ks.PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: im.Name},
			DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}})
		if reason != "" {
			if !apierrors.IsTooManyRequests(err) {
				return fmt.Errorf("it is evicted: %w", err)
			}
			return nil
		}
		return err
	})
}

// guardedAgain waits until an instance manager has a budget that lets none go.
func (u *attachedUpgrade) guardedAgain(node string, kind longhorn.InstanceManagerType) {
	u.t.Helper()
	name := u.legacy(node, kind).Name
	u.eventually(name+" has a budget", func(ctx context.Context) error {
		b, err := u.ks.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (b.Status.DisruptionsAllowed > 0 || b.Status.CurrentHealthy < 1) {
			err = fmt.Errorf("budget %+v", b.Status)
		}
		return err
	})
}
