package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SettingStatus is what was observed of a Setting.
type SettingStatus struct {
	// Applied is true once all components follow the value.
	// +required
	Applied bool `json:"applied"`
}

// Setting is one setting of the whole cluster. Its value is a field of its own, without a spec.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=settings,singular=setting,shortName=lhs,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="Value",type=string,JSONPath=`.value`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Setting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Value is the value as text; package setting knows how to read it.
	// +required
	Value  string        `json:"value"`
	Status SettingStatus `json:"status,omitempty"`
}

// SettingList is a list of Setting objects.
//
// +kubebuilder:object:root=true
type SettingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Setting `json:"items"`
}
