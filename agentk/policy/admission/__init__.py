"""
Admission webhook: the policy decides on writes once more, inside the API server.

    reviews.py        questions about one AdmissionReview, and the response
    server.py         the listener that the API server connects to
    certificates.py   certificates of this listener, and their rotation
    registration.py   the Secret with the certificates, and the registration of the
                      webhook
    webhook.py        the parts together

The API server calls the webhook only for requests that agentk sends as a user; see
`agentk.policy.via`.  Other requests do not depend on agentk.
"""
