// Package settingsync keeps Setting objects and says whether they have taken effect.
//
// Every setting of the table (package setting) has an object; missing ones are made with the
// default, or with the value from ConfigMap longhorn-default-setting. When the ConfigMap changes,
// its values are written over the objects once (the annotation
// longhorn.io/configmap-resource-version remembers which version was taken). Settings whose value
// comes from the manager's flags are kept equal to them by the leader.
//
// The controller of this package writes status.applied: true when every component follows the
// value, false while some Pod with running instances still has the former one.
package settingsync
