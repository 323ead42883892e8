package standalonetest

import authv1 "k8s.io/api/authentication/v1"

func selfReview() *authv1.SelfSubjectReview { return &authv1.SelfSubjectReview{} }
