package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AttacherType says who wants a volume attached; it decides the priority of the ticket.
type AttacherType string

const (
	AttacherTypeVolumeRestore    AttacherType = "volume-restore-controller"
	AttacherTypeVolumeExpansion  AttacherType = "volume-expansion-controller"
	AttacherTypeLonghornAPI      AttacherType = "longhorn-api"
	AttacherTypeCSI              AttacherType = "csi-attacher"
	AttacherTypeSalvage          AttacherType = "salvage-controller"
	AttacherTypeShareManager     AttacherType = "share-manager-controller"
	AttacherTypeSnapshot         AttacherType = "snapshot-controller"
	AttacherTypeBackup           AttacherType = "backup-controller"
	AttacherTypeVolumeClone      AttacherType = "volume-clone-controller"
	AttacherTypeVolumeEviction   AttacherType = "volume-eviction-controller"
	AttacherTypeBackingImageData AttacherType = "bim-ds-controller"
	AttacherTypeVolumeRebuilding AttacherType = "volume-rebuilding-controller"
)

// Keys and values of the parameters of a ticket.
const (
	AttachmentParameterDisableFrontend = "disableFrontend"
	AttachmentParameterLastAttachedBy  = "lastAttachedBy"
	// AttachmentParameterRecurringJob is the recurring job whose run holds the ticket, and
	// AttachmentParameterPod the Pod of that run: without the Pod the ticket means nothing.
	AttachmentParameterRecurringJob = "recurringJob"
	AttachmentParameterPod          = "pod"

	AttachmentParameterTrue  = "true"
	AttachmentParameterFalse = "false"
	// AttachmentParameterAny fits a volume attached with or without a frontend.
	AttachmentParameterAny = "any"
)

// Condition type and reasons of the status of a ticket. AttachmentReasonUnderWay, our addition, is
// that of a ticket that nothing is known to hold up.
const (
	AttachmentConditionSatisfied                   = "Satisfied"
	AttachmentReasonAttachedIncompatibleParameters = "AttachedWithIncompatibleParameters"
	AttachmentReasonUnderWay                       = "UnderWay"
)

// Priority orders tickets: the highest one wins a free volume. An unknown attacher has priority 0.
func (t AttacherType) Priority() int {
	switch t {
	case AttacherTypeVolumeRestore, AttacherTypeVolumeExpansion:
		return 2000
	case AttacherTypeLonghornAPI:
		return 1000
	case AttacherTypeCSI, AttacherTypeSalvage, AttacherTypeShareManager:
		return 900
	case AttacherTypeSnapshot, AttacherTypeBackup, AttacherTypeVolumeClone, AttacherTypeVolumeEviction,
		AttacherTypeBackingImageData, AttacherTypeVolumeRebuilding:
		return 800
	}
	return 0
}

// VolumeAttachmentSpec is what is wanted of a VolumeAttachment.
type VolumeAttachmentSpec struct {
	// AttachmentTickets are the wishes by id.
	// +optional
	AttachmentTickets map[string]AttachmentTicket `json:"attachmentTickets,omitzero"`
	// Volume is the volume. It cannot be changed.
	// +required
	Volume string `json:"volume"`
}

// AttachmentTicket is the wish of one party to have a volume attached to a node.
type AttachmentTicket struct {
	// Generation grows when the wish changes.
	// +optional
	Generation int64 `json:"generation"`
	// ID is the key of the ticket again.
	// +optional
	ID string `json:"id"`
	// NodeID is where the volume should be attached.
	// +optional
	NodeID string `json:"nodeID"`
	// Parameters say how; see the keys AttachmentParameter….
	// +optional
	Parameters map[string]string `json:"parameters,omitzero"`
	// Type says who asks; it gives the priority.
	// +optional
	Type AttacherType `json:"type"`
}

// VolumeAttachmentStatus is what was observed of a VolumeAttachment.
type VolumeAttachmentStatus struct {
	// AttachmentTicketStatuses are the answers by id of the ticket.
	// +optional
	AttachmentTicketStatuses map[string]AttachmentTicketStatus `json:"attachmentTicketStatuses,omitzero"`
}

// AttachmentTicketStatus says whether one ticket has what it wants.
type AttachmentTicketStatus struct {
	// Conditions say why a ticket is not satisfied.
	// +required
	// +nullable
	Conditions []Condition `json:"conditions"`
	// Generation is that of the wish answered. An answer to an older wish does not count.
	// +optional
	Generation int64 `json:"generation"`
	// ID is the id of the ticket.
	// +optional
	ID string `json:"id"`
	// Satisfied is true if the volume is attached as wished.
	// +required
	Satisfied bool `json:"satisfied"`
}

// VolumeAttachment collects who wants a volume attached, where and why. It has the name of the volume; the
// controller follows the ticket with the highest priority.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=volumeattachments,singular=volumeattachment,shortName=lhva,scope=Namespaced
// +kubebuilder:metadata:labels="longhorn-manager="
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VolumeAttachment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VolumeAttachmentSpec   `json:"spec,omitempty"`
	Status VolumeAttachmentStatus `json:"status,omitempty"`
}

// VolumeAttachmentList is a list of VolumeAttachment objects.
//
// +kubebuilder:object:root=true
type VolumeAttachmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []VolumeAttachment `json:"items"`
}
